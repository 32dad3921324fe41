"""What the doctor found out about a data set."""

from collections.abc import Mapping
from dataclasses import dataclass

from jaxtrain.config import Config
from jaxtrain.data.doctor.classes import Classes
from jaxtrain.data.doctor.finding import Finding
from jaxtrain.data.doctor.look import Rules
from jaxtrain.data.doctor.scan import SPLITS, Scan
from jaxtrain.data.stores import Store


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """All that was found out about a data set.

    Attributes:
      config: of the run that it is for.
      store: the set.
      rules: what its images must be.
      scan: what was seen of each example.
      classes: their sizes; None: the targets are no classes.
      findings: the worst first.
      label_noise: kind of finding -> estimated part of the labels that is wrong.
      seconds: that it took.
    """

    config: Config
    store: Store
    rules: Rules
    scan: Scan
    classes: Classes | None
    findings: list[Finding]
    label_noise: Mapping[str, float]
    seconds: float

    @property
    def source(self) -> str:
        return self.config.data.source

    @property
    def errors(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.level == "error"]

    def split(self, row: int) -> str:
        """Return the name of the split of an example."""
        return SPLITS[self.scan.split[row]]

    def label(self, row: int) -> str | None:
        """Return the name of the class of an example, if it has one."""
        if self.scan.labels is None or self.classes is None:
            return None
        number = int(self.scan.labels[row])
        names = self.classes.names
        return names[number] if 0 <= number < len(names) else str(number)
