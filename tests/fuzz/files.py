"""Saved files that were damaged or changed: models, predictors, checkpoints, results, tables, images."""

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
from tests.fuzz.mutations import bytes_changed, changed_bytes, json_changed, signed
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
        self.kinds = [(self.model, 30), (self.predictor, 20), (self.run, 12), (self.results, 18)]
        self.kinds += [(self.checkpoint, 8), (self.table, 6), (self.image, 6)]
        self.encoder = make(TorchEncoder)
        attached(self.encoder).save_pretrained(folder / "adapter")
        (folder / "bert").mkdir()
        tiny_bert(folder / "bert")
        self.labels = torch.arange(30) % 3
        self.fit(folder / "fitted")
        self.kinds += [(self.adapter, 8), (self.fitted, 5), (self.backbone, 3)]
        self.kinds += MoreFiles(
            folder, self.changed, lambda cell, to: read_saved_or_old(cell).export(to)
        ).kinds

    def make(self, rng):
        """The name of a case and its call."""
        kind = rng.choices([k for k, _ in self.kinds], [w for _, w in self.kinds])[0]
        return kind(rng)

    def changed(self, rng, source):
        """A copy of a folder with one file changed; returns its path and the name of the file."""
        shutil.rmtree(self.work, ignore_errors=True)
        shutil.copytree(source, self.work)
        file = rng.choice(sorted(path for path in self.work.rglob("*") if path.is_file()))
        others = [path for path in source.rglob("*") if path.suffix == file.suffix and path.is_file()]
        file.write_bytes(changed_bytes(rng, file, others))
        return str(file.relative_to(self.work))

    def model(self, rng):
        name = self.changed(rng, self.folder / "model")
        before = (self.folder / "model" / name).read_bytes()

        def load():
            model = sgpa.load(self.work)
            check_prediction(model.predict(self.x[:, :, :, :]))
            if name.endswith("safetensors") and (self.work / name).read_bytes() != before:
                one, other = (read_tensors(f / name)[0] for f in (self.folder / "model", self.work))
                if not signed(self.work / name) and any(not torch.equal(one[key], other[key]) for key in one):
                    raise Accepted("changed weights")

        return f"model/{name}", load

    def predictor(self, rng):
        name = self.changed(rng, self.folder / "exported")

        def read():
            trained = read_saved(self.work).open()
            answers = trained.answers(trained.reader.read([self.folder / "image.png"]))
            if any(isinstance(v, float) and math.isnan(v) for answer in answers for v in answer.values()):
                raise Accepted("an answer is NaN")

        return f"exported/{name}", read

    def run(self, rng):
        name = self.changed(rng, self.folder / "run")

        def read():
            for cell in finished_cells(self.work)[:2]:
                read_saved_or_old(cell.folder).open()
            saved_results(self.work)
            sgpa.load(self.work)

        return f"run/{name}", read

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

    def fitted(self, rng):
        name = self.changed(rng, self.folder / "fitted")
        again = rng.random() < 0.5
        call = (lambda: self.fit(self.work)) if again else (lambda: sgpa.load(self.work))
        return f"fitted/{name}", lambda: check_prediction(call().predict(self.x))

    def adapter(self, rng):
        name = self.changed(rng, self.folder / "adapter")
        rows = batch(self.encoder, 3, 0)

        def attach():
            answer = sgpa.attach(self.encoder, self.work).predict(rows)
            check_prediction(answer)
            if not answer.novelty.isfinite().all():
                raise Accepted("the novelty is not finite")

        return f"adapter/{name}", attach

    def backbone(self, rng):
        name = self.changed(rng, self.folder / "bert")
        network = TextBackbone(name=str(self.work))

        def read():
            texts._network.cache_clear()
            if not network.features(["a good film"]).values.isfinite().all():
                raise Accepted("features are not finite")

        return f"bert/{name}", read

    def checkpoint(self, rng):
        name = self.changed(rng, self.folder / "resumable")
        return f"resumable/{name}", lambda: trainer(self.work).fit()

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
