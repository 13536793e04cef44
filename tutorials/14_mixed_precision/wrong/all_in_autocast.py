"""Everything stands in the block of autocast.

rejected by: test_train_step
message: autocast is for the model and the loss alone
"""


def train_step(model, loss_function, optimizer, scaler, x, labels):
    optimizer.zero_grad()
    with flow.autocast("cpu", dtype=flow.float16):
        loss = loss_function(model(x), labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer, list(model.parameters()))
    return loss.item()
