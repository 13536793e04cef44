"""Models of timm compute on miniflow what they compute on torch: one of each family, the smallest, on small images."""

import numpy as np
import pytest
from checks import assert_close
from models import compare, needed, on_miniflow, torch
from safetensors.torch import save_file

import miniflow as flow

# of images of 64 x 64
ANY_SIZE = (
    "pvt_v2_b0 convnext_atto convnextv2_atto efficientnet_b0 resnet18 resnetv2_50 regnetx_002 regnety_002 densenet121 "
    "mobilenetv2_100 mobilenetv3_small_100 mobilenetv4_conv_small poolformer_s12 ghostnet_100 hrnet_w18_small "
    "nfnet_f0 repvgg_a0 rexnet_100 edgenext_xx_small mobilevit_xxs mobilevitv2_050 mambaout_femto gernet_s dla46_c "
    "lambda_resnet26t resnest14d skresnet18 efficientvit_b0 fastvit_t8 inception_next_atto repvit_m0_9 starnet_s050"
)
TOLD_THE_SIZE = (
    "vit_tiny_patch16_224 deit_tiny_distilled_patch16_224 mixer_s32_224 resmlp_12_224 gmlp_ti16_224 cait_xxs24_224 "
    "coat_tiny xcit_nano_12_p16_224 twins_pcpvt_small twins_svt_small volo_d1_224 tnt_s_patch16_224 visformer_tiny "
    "maxvit_rmlp_pico_rw_256 coatnet_nano_rw_224 sequencer2d_s"
)
# name -> the size of the images, options
MODELS = {
    **{name: (64, {}) for name in ANY_SIZE.split()},
    **{name: (64, {"img_size": 64}) for name in TOLD_THE_SIZE.split()},
    "swin_tiny_patch4_window7_224": (64, {"img_size": 64, "window_size": 4}),
    "swinv2_tiny_window8_256": (64, {"img_size": 64, "window_size": 4}),
    "beit_base_patch16_224": (64, {"img_size": 64, "depth": 2, "embed_dim": 192, "num_heads": 3}),
    "vgg11": (32, {}),
    "crossvit_tiny_240": (240, {}),
    "convmixer_768_32": (32, {}),
    "eva02_tiny_patch14_224": (56, {"img_size": 56}),
    "naflexvit_base_patch16_gap": (64, {"depth": 2, "embed_dim": 192, "num_heads": 3}),
    "levit_128s": (224, {}),
    "efficientvim_m1": (224, {}),
    "efficientformer_l1": (224, {}),
    "efficientformerv2_s0": (224, {}),
}


@pytest.mark.parametrize("name", MODELS)
def test_model(name):
    size, options = MODELS[name]
    compare("timm", lambda timm: timm.create_model(name, **options), size)


def test_pretrained_weights(tmp_path):
    """A file that torch wrote is loaded by timm's own code."""
    path, images = (
        tmp_path / "weights.safetensors",
        np.random.default_rng(0).standard_normal((1, 3, 64, 64), np.float32),
    )
    theirs = needed("timm").create_model("resnet10t").eval()
    save_file(theirs.state_dict(), path)
    with on_miniflow():
        import timm

        ours = timm.create_model("resnet10t", checkpoint_path=str(path)).eval()
    assert_close(ours(flow.tensor(images)), theirs(torch.tensor(images)).detach().numpy(), rtol=1e-4, atol=1e-5)
    assert torch.equal(needed("safetensors.torch").load_file(path)["fc.weight"], theirs.fc.weight)


def losses(framework, model, images, targets, graph=False):
    """Of three training steps."""
    optimizer = framework.optim.SGD(model.train().parameters(), lr=0.01, momentum=0.9)
    inputs = framework.tensor(images), framework.tensor(targets)

    def backward(x, y):
        loss = framework.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        return loss

    def step(x, y):
        optimizer.zero_grad()
        loss = backward(x, y)
        optimizer.step()
        return loss

    if graph:

        class Step(flow.nn.Graph):
            def __init__(self):
                super().__init__()
                self.model = model
                self.add_optimizer(optimizer)

            def build(self, x, y):
                return backward(x, y)

        step = Step()
    return [step(*inputs).item() for _ in range(3)]


@pytest.mark.parametrize("graph", [False, True], ids=["eager", "graph"])
@pytest.mark.parametrize("name", ["resnet18", "convnext_atto"])
def test_training(name, graph):
    draw = np.random.default_rng(0)
    images, targets = draw.standard_normal((4, 3, 64, 64), np.float32), draw.integers(0, 1000, 4)
    torch.manual_seed(0)
    theirs = needed("timm").create_model(name)
    state = {name: value.numpy().copy() for name, value in theirs.state_dict().items()}
    with on_miniflow():
        ours = needed("timm").create_model(name)
        ours.load_state_dict({name: flow.tensor(value) for name, value in state.items()})
        found = losses(flow, ours, images, targets, graph)
    assert found == pytest.approx(losses(torch, theirs, images, targets), rel=1e-4)
