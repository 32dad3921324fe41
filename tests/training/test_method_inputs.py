"""A method with arrays beside the model: planned, loaded, and given to the step."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtrain import own
from jaxtrain.config import CustomConfig
from jaxtrain.errors import UserError
from jaxtrain.parallel.data_sharding import replicated
from jaxtrain.trainer.setup import build_setup
from jaxtrain.training.methods.base import Gradients, Method, Objective
from jaxtrain.training.methods.build import build_method
from jaxtrain.training.methods.inputs import MethodContext, MethodInputs
from jaxtrain.training.methods.plain import Plain
from tests.helpers.layered import layered, take_steps

METHOD = "tests.training.test_method_inputs:Numbered"
own.allow([METHOD])


class Numbers(MethodInputs):
    """Number n for example n."""

    def __init__(self, context: MethodContext):
        self.num, self.mesh = len(context.source), context.layout.mesh

    @property
    def abstract(self) -> Any:
        everywhere = replicated(self.mesh)
        return jax.ShapeDtypeStruct((self.num,), jnp.float32, sharding=everywhere)

    def load(self, *args: Any, **kwargs: Any) -> Any:
        return jax.device_put(
            np.arange(self.num, dtype=np.float32), replicated(self.mesh)
        )

    def describe(self) -> dict[str, str]:
        return {"numbers": str(self.num)}


class Numbered(Plain):
    """A method that tells the mean number of the examples of a batch."""

    def __init__(self, file: str, digest: str | None = None):
        self.file, self.digest = file, digest

    def open(
        self, options: Mapping[str, Any], begun: Mapping[str, Any]
    ) -> tuple[Method, dict[str, Any]]:
        return self, {**options, "digest": f"of {self.file}"}

    def plan_inputs(self, context: MethodContext) -> tuple[Method, MethodInputs]:
        return self, Numbers(context)

    def gradients(self, objective: Objective, params: Any, *given: Any) -> Gradients:
        grads, model_state, metrics = super().gradients(objective, params, *given)
        index = given[1]["index"]
        told = {
            "number": objective.method_arrays[index].mean(),
            "expected": index.astype(jnp.float32).mean(),
        }
        return grads, model_state, {**metrics, **told}


TRAIN = {"steps": 1}
PART = CustomConfig(name=METHOD, options={"file": "a"})
CONFIG = layered(TRAIN, method=PART)


def test_a_step_gets_the_arrays_that_its_method_has_planned():
    found = take_steps(CONFIG).metrics
    np.testing.assert_array_equal(found["number"], found["expected"])
    assert found["number"].min() > 0


@pytest.mark.plugins
def test_a_run_records_what_the_method_opens_and_lowers_its_step_without_loading(
    monkeypatch: Any,
):
    from jaxtrain.plugins.plan.measure import lower_step

    monkeypatch.setattr(Numbers, "load", None)
    setup = build_setup(layered(TRAIN, method=PART, precision="fp32"))
    assert setup.config.method.arguments() == {"file": "a", "digest": "of a"}
    assert setup.method_inputs is not None
    assert setup.method_inputs.describe() == {"numbers": "24"}
    (shapes,) = [x.shape for x in jax.tree.leaves(setup.method_arrays)]
    assert shapes == (24,)
    assert "number" in lower_step(setup).out_info[1]


class Asking(Plain):
    """A method with a teacher, which it does not open."""

    def __init__(self, teacher: str):
        self.teacher = teacher


def test_a_teacher_that_nothing_opens_is_refused():
    name = f"{Asking.__module__}:{Asking.__name__}"
    own.allow([name])
    part = CustomConfig(name=name, options={"teacher": "runs/x"})
    with pytest.raises(
        UserError, match="has a teacher, but does not override plan_inputs"
    ):
        build_method(part)
