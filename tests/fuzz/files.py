"""Saved files that were damaged or changed: models, predictors, checkpoints, results, tables, images."""

import itertools
import json
import math
import shutil
from contextlib import suppress
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from tests.fuzz.guard import Accepted
from tests.fuzz.more_files import MoreFiles
from tests.fuzz.mutations import bytes_changed, json_changed, signed
from tests.fuzz.predictors import Predictors
from tests.fuzz.sources import Source, copy, every_entry
from tests.support.backbones import tiny_bert
from tests.support.fake_results import synthetic
from tests.support.tiny_transformers import TorchEncoder, attached, batch, make
from tests.support.training_runs import Stop, stop_at, trainer

import sgpa
from sgpa.core.files import read_tensors
from sgpa.data.backbones import texts
from sgpa.data.backbones.texts import TextBackbone
from sgpa.data.images.folder import read_images
from sgpa.data.texts.tables import read_texts
from sgpa.experiments.audit.model import open_classifier
from sgpa.experiments.audit.rows import read_rows
from sgpa.experiments.runner import saved_results
from sgpa.inference.saved import finished_cells, read_saved
from sgpa.models import Transformer
from sgpa.report import page
from sgpa.report.merge import merge
from sgpa.report.sections.warnings import warnings

FIXTURES = Path(__file__).parents[1] / "fixtures" / "v0.1"


class Cases:
    """Makes a case from a generator of random numbers."""

    def __init__(self, folder):
        torch.manual_seed(0)
        self.folder, self.work = folder, folder / "work"
        config = sgpa.ModelConfig(
            embedding=sgpa.PatchConfig(image_size=4, channels=1, patch_size=2),
            attention=sgpa.SgpaConfig(num_global=2),
            **{"depth": 1, "heads": 2, "width": 8, "outputs": 3},
        )
        Transformer(config).save_pretrained(folder / "model")
        self.x = torch.randn(2, 1, 4, 4)
        shutil.copytree(FIXTURES / "recipe-run", folder / "run")
        Image.fromarray(np.arange(192, dtype=np.uint8).reshape(8, 8, 3)).save(folder / "image.png")
        Image.fromarray(np.arange(192, dtype=np.uint8).reshape(8, 8, 3)).save(folder / "image.jpg")
        (folder / "table.csv").write_text("text,label\n" + "a good film,yes\nan odd film,no\n" * 8)
        (folder / "results.json").write_text(json.dumps(synthetic(("mle", "sgpa"), (0, 1))))
        (folder / "resumable").mkdir()
        with suppress(Stop):
            trainer(folder / "resumable", on_progress=stop_at(2)).fit()
        sgpa_cell = next(c.folder for c in finished_cells(folder / "run") if "sgpa" in c.folder.name)
        read_saved_or_old(sgpa_cell).export(folder / "exported")
        self.encoder = make(TorchEncoder)
        attached(self.encoder).save_pretrained(folder / "adapter")
        (folder / "bert").mkdir()
        tiny_bert(folder / "bert")
        self.labels = torch.arange(30) % 3
        self.fit(folder / "fitted")
        named = (
            *(("model", self.model, 30), ("exported", self.predictor, 20), ("run", self.run, 12)),
            *(("adapter", self.adapter, 8), ("fitted", self.fitted, 3), ("bert", self.backbone, 3)),
            ("resumable", self.checkpoint, 8),
        )
        self.sources = [Source(name, folder / name, read, weight) for name, read, weight in named]
        self.sources.append(Source("fitted again", folder / "fitted", self.fitted_again, 3))
        self.sources += MoreFiles(folder, export).sources + Predictors(folder).sources
        self.others = [(self.results, 18), (self.table, 6), (self.image, 6), (self.rows, 3)]

    def make(self, rng, _=0):
        """The name of a case and its call."""
        weights = [weight for _, weight in self.others] + [source.weight for source in self.sources]
        made = rng.choices([*(make for make, _ in self.others), *self.sources], weights)[0]
        return made.damaged(rng, self.work) if isinstance(made, Source) else made(rng)

    def model(self, name):
        model = sgpa.load(self.work)
        check_prediction(model.predict(self.x[:, :, :, :]))
        if name.endswith("safetensors"):
            one, other = (read_tensors(f / name)[0] for f in (self.folder / "model", self.work))
            if not signed(self.work / name) and any(not torch.equal(one[key], other[key]) for key in one):
                raise Accepted("changed weights")

    def predictor(self, _):
        trained = read_saved(self.work).open()
        answers = trained.answers(trained.reader.read([self.folder / "image.png"]))
        if any(isinstance(v, float) and math.isnan(v) for answer in answers for v in answer.values()):
            raise Accepted("an answer is NaN")

    def run(self, _):
        for cell in finished_cells(self.work)[:2]:
            read_saved_or_old(cell.folder).open()
        saved_results(self.work)
        sgpa.load(self.work)

    def results(self, rng):
        data = json.loads((self.folder / "results.json").read_text())
        file = self.folder / "changed.json"
        if rng.random() < 0.3:
            file.write_bytes(bytes_changed(rng, json.dumps(data).encode()))
        else:
            for _ in range(rng.choice((1, 1, 3))):
                data = json_changed(rng, data)
            file.write_text(json.dumps(data))
        draw = rng.random() < 0.02

        def read():
            results = saved_results(file)
            merge([results])
            materials = page._materials(results, None)
            for material in materials:
                warnings(material)
            if draw:
                page.write_report(results, self.folder / "report", pdf=False)

        return f"results.json ({'page' if draw else 'tables'})", read

    def fit(self, folder):
        """Train for a moment, or read what was trained."""
        x = torch.randn(30, 1, 4, 4, generator=torch.Generator().manual_seed(0))
        options = {"method": "mle", "steps": 2, "batch_size": 30, "on_progress": lambda _: None}
        return sgpa.fit(x, self.labels, directory=folder, **options)

    def fitted(self, _):
        check_prediction(sgpa.load(self.work).predict(self.x))

    def fitted_again(self, _):
        check_prediction(self.fit(self.work).predict(self.x))

    def adapter(self, _):
        answer = sgpa.attach(self.encoder, self.work).predict(batch(self.encoder, 3, 0))
        check_prediction(answer)
        if not answer.novelty.isfinite().all():
            raise Accepted("the novelty is not finite")

    def backbone(self, _):
        texts._network.cache_clear()
        if not TextBackbone(name=str(self.work)).features(["a good film"]).values.isfinite().all():
            raise Accepted("features are not finite")

    def checkpoint(self, _):
        trainer(self.work).fit()

    def rows(self, rng):
        file = self.folder / "changed-rows.csv"
        file.write_bytes(bytes_changed(rng, (self.folder / "rows.csv").read_bytes()))

        def read():
            classifier = open_classifier(self.folder / "text-model", "cpu")
            read_rows(classifier, file, text_column=None, label_column=None, max_rows=60, seed=0)

        return "rows.csv", read

    def table(self, rng):
        file = self.folder / "changed.csv"
        file.write_bytes(bytes_changed(rng, (self.folder / "table.csv").read_bytes()))
        return "table.csv", lambda: read_texts(file)

    def image(self, rng):
        suffix = rng.choice((".png", ".jpg"))
        file = self.folder / f"changed{suffix}"
        file.write_bytes(bytes_changed(rng, (self.folder / f"image{suffix}").read_bytes()))
        return f"image{suffix}", lambda: read_images([file], 8)


def check_prediction(prediction):
    """Raise unless probabilities are finite and add up to 1."""
    p = prediction.probabilities
    if not p.isfinite().all() or not torch.allclose(p.sum(-1), torch.ones(len(p)), atol=1e-3):
        raise Accepted("the prediction is not finite")


def read_saved_or_old(cell):
    """The predictor of a cell, also of one that version 0.1 wrote."""
    from sgpa.cli.options import saved_predictor

    return saved_predictor(cell)


def export(cell, folder):
    """Write the exported model of a cell, also of one that version 0.1 wrote."""
    read_saved_or_old(cell).export(folder)


class Entries:
    """Every entry of every saved JSON file, with every hostile value: case N is the N-th of them."""

    def __init__(self, folder):
        self.cases = Cases(folder)
        left_out = ("run", "fitted again", "audit")  # the same files as others, or too slow
        self.sources = [source for source in self.cases.sources if source.name not in left_out]
        self.changes, self.next = self._changes(), 0

    def _changes(self):
        return ((source, *change) for source in self.sources for change in every_entry(source.folder))

    def __len__(self):
        return sum(1 for _ in self._changes())

    def make(self, _, number):
        """The name of a case and its call; numbers must ascend."""
        source, name, data = next(itertools.islice(self.changes, number - self.next, None))
        self.next = number + 1
        copy(source.folder, self.cases.work)
        (self.cases.work / name).write_text(json.dumps(data))
        return f"{source.name}/{name}", lambda: source.open(name)
