"""Does not say how many micro-batches there are: the batch goes through the stages as a whole.

rejected by: test_pipeline
message: one for each micro-batch
"""


class Pipeline(nn.Graph):
    def __init__(self, modules, placements, micro_batches, schedule, lr):
        super().__init__()
        self.model = nn.Sequential(*modules)
        for stage, (module, placement) in enumerate(zip(modules, placements)):
            module.to_global(placement, B)
            self.model[stage].config.set_stage(stage, placement)
        self.add_optimizer(flow.optim.Adam(self.model.parameters(), lr=lr))
        self.config.set_pipeline_schedule(schedule)

    def build(self, x, y):
        loss = nn.functional.mse_loss(self.model(x), y)
        loss.backward()
        return loss
