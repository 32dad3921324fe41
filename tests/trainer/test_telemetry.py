"""What lines of metrics tell of the machine, with GPUs that only a test has."""

import json
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pynvml
import pytest

from jaxtrain.cli import main
from jaxtrain.parallel import gpu_sensors
from jaxtrain.parallel.gpu_sensors import GpuSensors
from jaxtrain.parallel.gpus import GPUS, peak_flops
from jaxtrain.records.screen import Screen
from jaxtrain.records.writer import SYSTEM, scalars_by_split
from jaxtrain.trainer import telemetry
from tests.helpers.recipes import EIGHT_STEPS
from tests.helpers.runs import read_summary

NUM_FAKE = 4


class FakeNvml:
    """Four GPUs; figures follow from their numbers, and some functions fail."""

    NVMLError = pynvml.NVMLError
    NVML_TEMPERATURE_GPU = pynvml.NVML_TEMPERATURE_GPU

    def __init__(self, *failing: str):
        for name in failing:
            setattr(self, name, self.fail)

    def fail(self, *_: Any) -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

    def nvmlInit(self) -> None:
        pass

    def nvmlDeviceGetHandleByIndex(self, number: int) -> int:
        return number if number < NUM_FAKE else self.fail() or 0

    def nvmlDeviceGetHandleByUUID(self, name: str) -> int:
        return int(name.removeprefix("GPU-"))

    def nvmlDeviceGetUtilizationRates(self, gpu: int) -> Any:
        return types.SimpleNamespace(gpu=10 * gpu, memory=99)

    def nvmlDeviceGetMemoryInfo(self, gpu: int) -> Any:
        return types.SimpleNamespace(used=1000 * gpu, total=9999)

    def nvmlDeviceGetPowerUsage(self, gpu: int) -> int:
        return 100_000 * gpu

    def nvmlDeviceGetTemperature(self, gpu: int, kind: int) -> int:
        return 50 + gpu + kind


def test_sensors_are_those_of_the_gpus_that_cuda_sees():
    def temperatures(ordinals: list[int], visible: str | None) -> list[float]:
        every = GpuSensors(ordinals, visible, FakeNvml()).read()
        return [one["gpu_temperature"] - 50 for one in every]

    assert temperatures([0, 2], None) == [0, 2]
    assert temperatures([0, 1], "3,1") == [3, 1]
    assert temperatures([1], "GPU-3, GPU-2") == [2]
    # Nothing is guessed where the numbers do not fit.
    assert temperatures([2], "3,1") == temperatures([7], None) == []
    assert temperatures([], None) == []


def test_what_nvml_does_not_tell_is_left_out():
    (whole,) = GpuSensors([3], None, FakeNvml()).read()
    assert whole == {
        "gpu_utilization": 0.3,
        "gpu_memory_bytes": 3000,
        "gpu_power_watts": 300.0,
        "gpu_temperature": 53,
    }
    (part,) = GpuSensors([3], None, FakeNvml("nvmlDeviceGetPowerUsage")).read()
    assert part == {n: v for n, v in whole.items() if n != "gpu_power_watts"}
    assert GpuSensors([3], None, FakeNvml("nvmlInit")).read() == []


def test_peaks_are_of_known_gpus_alone():
    h100 = GPUS["h100"].device_kind
    assert peak_flops(h100, "bfloat16") == 989.4e12
    assert peak_flops(GPUS["v100"].device_kind, "tensorfloat32") == 15.7e12
    assert peak_flops("cpu", "float32") is peak_flops("NVIDIA X1", "float32") is None


@pytest.mark.slow
def test_lines_of_a_run_tell_of_the_machine(
    write_config: Callable[..., Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    sensors = GpuSensors([1, 3], None, FakeNvml())
    monkeypatch.setattr(gpu_sensors, "sensors_of", lambda devices: sensors)
    monkeypatch.setattr(telemetry, "peak_flops", lambda kind, products: 1e9)
    run, config = tmp_path / "run", write_config(EIGHT_STEPS)
    words = ["--config", str(config), "--workdir", str(run)]
    assert main([*words, "--logging.every-steps", "2"]) == 0
    lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    lines = [line for line in lines if line["kind"] == "train"]
    assert len(lines) == 4
    for line in lines:
        assert set(line) >= {*SYSTEM} - {"gpu_peak_bytes"}
        assert line["gpu_power_watts"] == 400 and 0 <= line["data_wait"] <= 1
        assert line["host_memory_bytes"] > 1e7 and line["host_cpu_cores"] >= 0
    summary = json.loads((run / "summary.json").read_text())
    # FLOPs of an image, whatever the speed was: the same in each line.
    told = [line["mfu"] * 1e9 / line["examples_per_second"] for line in lines]
    told.append(summary["mfu"] * 1e9 / summary["examples_per_second"])
    assert told == pytest.approx([told[0]] * 5) and told[0] > 1e4
    assert "GPU 20%  400 W  53 C" in capsys.readouterr().out


def test_on_a_cpu_nothing_is_invented(digits_run: Path):
    lines = map(json.loads, (digits_run / "metrics.jsonl").read_text().splitlines())
    lines = [line for line in lines if line["kind"] == "train"]
    expected = {"data_wait", "host_cpu_cores", "host_memory_bytes"}
    assert all(set(line) & set(SYSTEM) == expected for line in lines)
    assert "mfu" not in read_summary(digits_run)


def test_trackers_show_the_machine_apart():
    values = {"loss": 1.0, "mfu": 0.4, "host_cpu_cores": 2.0}
    names = scalars_by_split("train", values)
    assert list(names) == ["train/loss", "system/mfu", "system/host_cpu_cores"]


def test_a_short_wait_is_not_shown(capsys: pytest.CaptureFixture[str]):
    screen = Screen(0, 10, lambda step: step / 10, ("loss",))
    for step, wait in ((1, 0.04), (2, 0.31)):
        values = {"loss": 1.0, "examples_per_second": 5.0, "data_wait": wait}
        screen.write("train", step, values)
    screen.close()
    _, first, second = capsys.readouterr().out.splitlines()
    assert "data wait" not in first and "5 images/s  data wait 31%" in second
