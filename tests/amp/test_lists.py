"""The classes of mixed precision that ops name."""

from op_classes import AmpBlackIdentity

from miniflow.dispatch.dispatcher import Op


def test_classes_are_known():
    found = {op.amp for op in Op.by_name.values()}
    assert found == {None, "white", "gray", "clear", "black", "untouched"}


def test_views_stay_views():
    assert {op for op in Op.by_name.values() if op.view and op.amp != "clear"} == {AmpBlackIdentity}


def test_only_ops_that_may_be_in_half_precision_keep_inputs_in_float32():
    assert {op.amp for op in Op.by_name.values() if op.keeps_float32} == {"gray"}
