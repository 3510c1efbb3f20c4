"""The compiled step, run instead of recorded: what a machine without a GPU can check of it."""

from sgpa.training.steps.captured import Recorded
from sgpa.training.steps.compiled import Compiled
from sgpa.training.steps.plain import Step
from sgpa.training.steps.stacking import side_by_side


class Run(Compiled):
    """Compiled, but run instead of recorded."""

    ready = False

    def step(self, batches, moment):
        rows = moment.progress.dataset_size
        draws = self._draws(batches[0], moment.progress)
        if not self.ready:
            self.given = Recorded(*side_by_side(batches), None)
            states = [generator.get_state() for generator in self.generators]
            self._prepare(self.given, draws, rows)
            for generator, state in zip(self.generators, states, strict=True):
                generator.set_state(state)
            self.ready = True
        self._load(self.given, batches, moment)
        self.optimiser.zero_grad(set_to_none=True)
        self._body(self.given, draws, rows)
        return Step(self.parts.clone(), *self.weights.tolist())
