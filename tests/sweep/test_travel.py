"""Modules that are objects of classes of their own travel by name."""

from __future__ import annotations

import pickle
import sys
from types import ModuleType

import pytest

from dtsweep.sweep.travel import send_modules_by_name


class Lazy(ModuleType):
    """Class of its own, as modules that compute their attributes have."""


def test_a_loaded_module_of_its_own_class_is_sent_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    module = Lazy("lazy_of_a_test")
    with pytest.raises(TypeError, match="cannot pickle 'Lazy' object"):
        pickle.dumps(module)
    monkeypatch.setitem(sys.modules, "lazy_of_a_test", module)
    send_modules_by_name()
    assert pickle.loads(pickle.dumps(module)) is module


def test_one_that_is_not_loaded_under_its_name_is_refused_as_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "lazy_of_a_test", Lazy("lazy_of_a_test"))
    send_modules_by_name()
    with pytest.raises(TypeError, match="cannot pickle 'Lazy' object"):
        pickle.dumps(Lazy("lazy_of_a_test"))
