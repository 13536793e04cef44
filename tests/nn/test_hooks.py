"""Hooks of modules: before and after forward, and on the gradients."""

import copy

import numpy as np
import pytest
from checks import assert_close, assert_same

import miniflow as flow
from miniflow import nn
from miniflow.errors import ArgumentTypeError, AutogradError, CheckpointError

pytestmark = pytest.mark.cpu_only("no test here looks at the device")


class Double(nn.Module):
    def forward(self, x, *, shift=0.0):
        return x * 2 + shift


def test_forward_hooks_see_and_replace():
    module = Double()
    log = []
    first = module.register_forward_pre_hook(lambda m, args: log.append(("pre", m, args)))
    second = module.register_forward_pre_hook(lambda m, args: args[0] + 1)
    after = module.register_forward_hook(lambda m, args, y: log.append(("post", args[0].item(), y.item())))
    replaced = module.register_forward_hook(lambda m, args, y: y + 100)
    x = flow.tensor(3.0)
    assert module(x).item() == 108.0
    assert log[0][0] == "pre" and log[0][1] is module and log[0][2][0] is x
    assert log[1] == ("post", 4.0, 8.0)
    for handle in (first, second, after, replaced, replaced):
        handle.remove()
    assert module(x).item() == 6.0


def test_hooks_with_kwargs_and_order():
    module = Double()
    log = []
    module.register_forward_pre_hook(lambda m, a, k: (a, {"shift": k["shift"] + 1}), with_kwargs=True)
    module.register_forward_hook(lambda m, a, k, y: log.append(("last", k["shift"], y.item())), with_kwargs=True)
    module.register_forward_hook(lambda m, a, y: log.append("first"), prepend=True)
    assert module(flow.tensor(1.0), shift=5.0).item() == 8.0
    assert log == ["first", ("last", 6.0, 8.0)]
    module.register_forward_pre_hook(lambda m, a, k: a, with_kwargs=True)
    with pytest.raises(TypeError, match=r"expected None or a pair \(args, kwargs\)"):
        module(flow.tensor(1.0), shift=1.0)


def test_a_hook_as_a_context_manager():
    module = Double()
    with module.register_forward_hook(lambda m, args, y: y * 10):
        assert module(flow.tensor(1.0)).item() == 20.0
    assert module(flow.tensor(1.0)).item() == 2.0


class TwoByTwo(nn.Module):
    def forward(self, x, scale, y):
        return x * scale * y, x + y


def test_backward_hook_sees_the_gradients_of_inputs_and_outputs():
    module = TwoByTwo()
    seen = []
    module.register_full_backward_hook(lambda m, grad_input, grad_output: seen.append((m, grad_input, grad_output)))
    x, y = flow.tensor([1.0, 2.0], requires_grad=True), flow.tensor([3.0, 5.0])
    product, total = module(x, 2.0, y)
    (product * flow.tensor([1.0, 10.0]) + 100 * total).sum().backward()
    ((seen_module, grad_input, grad_output),) = seen
    assert seen_module is module
    assert_same(grad_output[0], np.array([1.0, 10.0], np.float32))
    assert_same(grad_output[1], np.array([100.0, 100.0], np.float32))
    assert grad_input[1] is None
    assert_same(grad_input[2], np.zeros(2, np.float32))
    assert_same(grad_input[0], np.array([106.0, 200.0], np.float32))
    assert_same(x.grad, np.array([106.0, 200.0], np.float32))


def test_backward_hooks_replace_gradients():
    module = nn.Linear(3, 2)
    module.register_full_backward_pre_hook(lambda m, grad_output: (grad_output[0] * 10,))
    handle = module.register_full_backward_hook(lambda m, grad_input, grad_output: (grad_input[0] * 7,))
    x = flow.randn(4, 3, requires_grad=True)
    cotangent = flow.randn(4, 2)
    module(x).backward(cotangent)
    weight = module.weight.detach().cpu().numpy()
    assert_close(x.grad, cotangent.cpu().numpy() @ weight * 70, rtol=1e-4, atol=1e-4)
    assert_close(module.bias.grad, cotangent.cpu().numpy().sum(0) * 10, rtol=1e-4, atol=1e-4)
    handle.remove()
    x.grad = None
    module(x).backward(cotangent)
    assert_close(x.grad, cotangent.cpu().numpy() @ weight * 10, rtol=1e-4, atol=1e-4)


def test_backward_hook_where_no_input_requires_grad():
    module = nn.Linear(3, 2)
    seen = []
    handle = module.register_full_backward_hook(lambda m, gi, go: seen.append((gi, go[0].shape)))
    module(flow.ones(4, 3)).sum().backward()
    assert seen == [((None,), (4, 2))] and module.weight.grad is not None
    handle.remove()
    module.register_full_backward_hook(lambda m, gi, go: go)
    with pytest.raises(AutogradError, match="no input of the module requires grad"):
        module(flow.ones(4, 3)).sum().backward()


def test_backward_hook_with_the_wrong_number_of_gradients():
    module = Double()
    module.register_full_backward_hook(lambda m, gi, go: (gi[0], gi[0]))
    with pytest.raises(AutogradError, match="returned 2 values for grad_input; expected 1"):
        module(flow.ones(2, requires_grad=True)).sum().backward()


def test_backward_hooks_need_no_gradients_to_run_forward():
    module = Double()
    module.register_full_backward_hook(lambda m, gi, go: None)
    with flow.no_grad():
        assert module(flow.ones(2, requires_grad=True)).tolist() == [2.0, 2.0]
    assert not module(flow.ones(2)).requires_grad


def test_unused_output_and_second_order():
    module = TwoByTwo()
    seen = []
    module.register_full_backward_hook(lambda m, gi, go: seen.append(go))
    x = flow.tensor([3.0], requires_grad=True)
    y = flow.tensor([5.0], requires_grad=True)
    product, _ = module(x, x, y)
    (first,) = flow.autograd.grad(product, x, create_graph=True)
    assert seen[0][1] is None
    assert_same(first.detach(), np.array([30.0], np.float32))
    (second,) = flow.autograd.grad(first, x)
    assert len(seen) == 1  # the second-order gradient crosses the inputs, not the outputs
    assert_same(second, np.array([10.0], np.float32))


def test_hooks_rename_and_refuse_entries_of_a_state():
    class Old(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(2, 2)
            self._register_load_state_dict_pre_hook(self.rename)

        def rename(self, state_dict, prefix, *args):
            state_dict[f"{prefix}layer.weight"] = state_dict.pop(f"{prefix}kernel")

    model = nn.Sequential(Old(), nn.Linear(2, 2))
    state = {name: value.clone() for name, value in model.state_dict().items()}
    state["0.kernel"] = state.pop("0.layer.weight") + 1
    copied = copy.deepcopy(model)
    for network in (model, copied):
        before = network[0].layer.weight.detach().clone()
        assert str(network.load_state_dict(state)) == "<All keys matched successfully>"
        assert_same(network[0].layer.weight, before + 1)
    assert "0.kernel" in state

    seen = []
    handle = model[1].register_load_state_dict_pre_hook(
        lambda module, state, prefix, *args: seen.append((module, prefix))
    )
    model.load_state_dict(state)
    handle.remove()
    model.load_state_dict(state)
    assert seen == [(model[1], "1.")]
    model.register_load_state_dict_pre_hook(lambda *args: args[-1].append("too old"))
    with pytest.raises(CheckpointError, match=r"Sequential\.load_state_dict: too old"):
        model.load_state_dict(state)
    with pytest.raises(ArgumentTypeError, match="Sequential: got the hook 3; expected a function"):
        model.register_load_state_dict_pre_hook(3)
