"""Damaged files of opened runs, audits, kept features and trained layers."""

import math
import os
from unittest.mock import patch

import torch
from tests.fuzz.guard import Accepted
from tests.fuzz.mutations import signed
from tests.fuzz.sources import Source
from tests.support.paths import KEPT
from tests.support.tiny_classifiers import image_classifier, text_classifier, write_images, write_texts

import sgpa
from sgpa.data.backbones import texts
from sgpa.data.backbones.texts import TextBackbone
from sgpa.experiments.audit.model import open_classifier
from sgpa.experiments.audit.rows import Batches, read_rows

SENTENCES = ["a good film", "a bad film , good", "number"]


class MoreFiles:
    """Sources; `export` writes the exported model of a cell."""

    def __init__(self, folder, export):
        self.folder, self.work = folder, folder / "work"
        export(KEPT["digits"], folder / "opened")
        self.digits = torch.rand(2, 1, 8, 8)
        model, tokenizer = text_classifier(folder / "text-model")
        write_texts(folder / "rows.csv", model, tokenizer, 60)
        write_images(folder / "images", image_classifier(folder / "image-model"), 60)
        with self._cache("cache"):
            self.features = self._features().values
        self.sources = [
            Source("opened", folder / "opened", self.opened, 12),
            Source("text-model", folder / "text-model", self.text_model, 3),
            Source("image-model", folder / "image-model", self.image_model, 3),
            Source("cache", folder / "cache", self.kept_features, 4),
            Source("audit", folder / "text-model", self.whole_audit, 0.2),
        ]

    def opened(self, _):
        for answer in sgpa.load(self.work).predict(self.digits):
            numbers = [value for value in answer.values() if isinstance(value, float)]
            if not all(map(math.isfinite, numbers)) or not 0 <= answer["novelty"] <= 1:
                raise Accepted(f"an answer is {dict(answer)}")

    def text_model(self, _):
        self._classify(self.folder / "rows.csv")

    def image_model(self, _):
        self._classify(self.folder / "images")

    def _classify(self, data):
        classifier = open_classifier(self.work, "cpu")
        rows = read_rows(classifier, data, text_column=None, label_column=None, max_rows=60, seed=0)
        batch = next(iter(Batches(rows, classifier.encode)))
        try:
            with torch.no_grad():
                finite = bool(classifier.model(**batch).logits.isfinite().all())
        except (RuntimeError, IndexError, ValueError, TypeError):  # of the model; an audit explains it
            finite = False
        if not finite:
            sgpa.audit(self.work, data, max_rows=60)
            raise Accepted("the logits are not finite")

    def whole_audit(self, _):
        sgpa.audit(self.work, self.folder / "rows.csv", max_rows=60)

    def kept_features(self, name):
        with self._cache("work"):
            if not torch.equal(self._features().values, self.features) and not signed(self.work / name):
                raise Accepted("other features")

    def _features(self):
        texts._network.cache_clear()
        return TextBackbone(name=str(self.folder / "bert")).features(SENTENCES, keep=True)

    def _cache(self, name):
        return patch.dict(os.environ, {"XDG_CACHE_HOME": str(self.folder / name)})
