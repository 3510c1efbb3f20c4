"""Damaged files of models with every kind of input, and of predictors of every method and reader."""

import json
import math

import torch
from tests.fuzz.guard import Accepted
from tests.fuzz.sources import Source
from tests.support.backbones import tiny_bert, tiny_vit
from tests.support.small_models import GRAPHS, PATCHES, TOKENS, graphs, images, small, texts
from tests.support.training_runs import CONFIG, blobs

import sgpa
from sgpa.core.files import write_json, write_tensors
from sgpa.core.inputs import Words
from sgpa.data import Dataset
from sgpa.data.backbones import images as image_networks
from sgpa.data.backbones import texts as text_networks
from sgpa.data.backbones.images import ImageBackbone
from sgpa.data.backbones.texts import TextBackbone
from sgpa.data.texts.tokenizer import train_tokenizer
from sgpa.inference import readers
from sgpa.inference.novelty import NoveltyOf
from sgpa.inference.saved import COMBINED, FILE, NOVELTY, Member, describe, read_saved
from sgpa.inference.trust import choose
from sgpa.methods import Calibration, KfacLaplace, McDropout, Mfvi, Mle, Sgpa, Sngp, TemperatureScaling
from sgpa.methods.ensemble import Ensemble
from sgpa.models import (
    DotProductConfig,
    FeatureConfig,
    KernelConfig,
    MeanFieldConfig,
    RandomFeatureConfig,
    SgpaConfig,
    SpectralConfig,
    Transformer,
    WordsConfig,
    saving,
)

FEATURES = FeatureConfig(width=16, max_tokens=128)
WORDS = WordsConfig(vocabulary=7, features=4, layers=2, max_tokens=6, embedding_width=8)
PICTURES = sgpa.PatchConfig(image_size=4, channels=1, patch_size=2)
SENTENCES = ["a good film", "a bad film , good", "number"]
SMILES = ["CCO", "CCN", "CC"]
MODELS = {  # config and inputs
    "tokens": (small(TOKENS), texts),
    "graphs": (small(GRAPHS, outputs=1, likelihood="laplace", pooling="sum"), graphs),
    "words": (
        small(WORDS, SgpaConfig(form="standard")),
        lambda: Words(torch.ones(2, 5, dtype=torch.long), torch.randn(2, 5, 2, 4)),
    ),
    "features": (
        small(FEATURES, SgpaConfig(form="cheng-boots", num_global=3, kernel=KernelConfig(locality=(1.0,)))),
        lambda: sgpa.Features(torch.randn(2, 5, 16), torch.zeros(2, 5, dtype=torch.bool)),
    ),
    "mean-field": (small(attention=DotProductConfig(), weights=MeanFieldConfig()), images),
    "spectral": (small(weights=SpectralConfig(), head=RandomFeatureConfig(features=8)), images),
    "numbers": (small(PATCHES, outputs=1, likelihood="laplace"), images),
}
METHODS = {
    "laplace": KfacLaplace(),
    "mcd": McDropout(samples=2),
    "ts": TemperatureScaling(),
    "mfvi": Mfvi(),
    "sngp": Sngp(head=RandomFeatureConfig(features=16)),
    "sgpa": Sgpa(attention=SgpaConfig(num_global=3)),
    "ensemble": Ensemble(base=Mle(), size=2, fit_temperature=True),
}


def write_predictor(folder, method, config, train, held_out, reader):
    """A predictor that was not trained, in a folder that describes itself."""
    models = [method.build(config).eval() for _ in method.member_seeds(0)]
    members, predictors = [], []
    for i, model in enumerate(models):
        member = Member(folder / f"model-{i}", folder / f"calibrated-{i}.safetensors")
        saving.save(model.config, model.state_dict(), member.model)
        tensors = {**method.calibrate(model, Calibration(train, held_out)), **saving.scale_of(model)}
        write_tensors(member.calibrated, tensors)
        members.append(member)
        predictors.append(method.predictor(model, tensors))
    if combined := method.calibrate_ensemble(predictors, held_out):
        write_tensors(folder / COMBINED, combined)
    novelty = NoveltyOf.fit(models[0], train, held_out)
    if novelty is not None:
        write_tensors(folder / NOVELTY, {k: v.float() for k, v in novelty.novelty.tensors().items()})
    prediction = method.combine(predictors, combined).predict(held_out.inputs)
    rule = choose(prediction, held_out.targets, None if novelty is None else novelty(held_out.inputs))
    reader.save(folder)
    classes = [f"class {k}" for k in range(config.outputs)] if config.likelihood == "categorical" else []
    write_json(folder / FILE, {"seed": 0} | describe(folder, method, members, rule, classes))


def check_answers(answers):
    """Raise unless all numbers of answers are finite, and shares are shares."""
    for answer in answers:
        numbers = [value for value in answer.values() if isinstance(value, float)]
        if not all(map(math.isfinite, numbers)):
            raise Accepted(f"an answer is {dict(answer)}")
        shares = [answer[name] for name in ("probability", "novelty") if answer.get(name) is not None]
        if not all(0 <= share <= 1 + 1e-6 for share in shares):
            raise Accepted(f"an answer is {dict(answer)}")


def check_any_prediction(prediction):
    """Raise unless a prediction's numbers are finite."""
    values = [prediction.score]
    if isinstance(prediction, sgpa.Regression):
        values += [prediction.mean, prediction.variance, *prediction.interval(0.9)]
    else:
        values += [prediction.probabilities, prediction.mutual_information]
    if not all(value.isfinite().all() for value in values):
        raise Accepted("the prediction is not finite")


class Predictors:
    """Sources."""

    def __init__(self, folder):
        self.folder, self.work = folder, folder / "work"
        torch.manual_seed(0)
        self.inputs, self.given = {}, {}
        for name, (config, make) in MODELS.items():
            Transformer(config).save_pretrained(folder / "models" / name)
            self.inputs[name] = make()
        tiny_bert(self._new("networks/text"))
        tiny_vit(self._new("networks/image"))
        how = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3, "size": {"height": 16, "width": 16}}
        (folder / "networks" / "image" / "preprocessor_config.json").write_text(json.dumps(how))
        self._write_predictors(folder / "predictors")
        self.sources = [
            *(self._source("models", name, self.predict, 3) for name in MODELS),
            *(self._source("predictors", name, self.answer, 2.5) for name in self.given),
            Source("networks/image", folder / "networks" / "image", self.image_backbone, 3),
        ]

    def _source(self, kind, name, read, weight):
        return Source(f"{kind}/{name}", self.folder / kind / name, lambda _: read(name), weight)

    def _new(self, name):
        (self.folder / name).mkdir(parents=True)
        return self.folder / name

    def _write_predictors(self, folder):
        train, held_out = blobs(30, 0), blobs(30, 1)
        grey = readers.ImageReader(size=4, grey=True)
        for name, method in METHODS.items():
            config = CONFIG if name != "mcd" else small(PICTURES, outputs=3)
            write_predictor(folder / name, method, config, train, held_out, grey)
            self.given[name] = torch.rand(2, 1, 4, 4)
        values = [Dataset(part.inputs, part.targets.float()) for part in (train, held_out)]
        numbers = small(PICTURES, outputs=1, likelihood="laplace")
        write_predictor(folder / "numbers", METHODS["sgpa"], numbers, *values, grey)
        self.given["numbers"] = torch.rand(2, 1, 4, 4)
        others = {
            "texts": readers.TextReader(tokenizer=train_tokenizer(SENTENCES, 270), max_tokens=16),
            "words": readers.WordReader(words=("a", "film"), max_words=6),
            "molecules": readers.MoleculeReader(atoms=("C", "N", "O"), width=4),
        }
        embeddings = {
            "texts": sgpa.TokenConfig(vocabulary=270, max_tokens=16, embedding_width=8),
            "words": sgpa.TokenConfig(vocabulary=7, max_tokens=6, embedding_width=8),
            "molecules": sgpa.GraphConfig(node_types=3, edge_types=3, identifier_width=4),
        }
        backbone = TextBackbone(name=str(self.folder / "networks" / "text"), max_tokens=16)
        others["features"] = readers.TextFeatureReader(backbone=backbone, digest=backbone.digest)
        embeddings["features"] = FeatureConfig(width=16, max_tokens=backbone.tokens)
        for name, reader in others.items():
            self.given[name] = SMILES if name == "molecules" else SENTENCES
            inputs = reader.read([], self.given[name]).inputs
            rows = Dataset(inputs, torch.arange(3) % 3)
            config = small(embeddings[name], outputs=3)
            write_predictor(folder / name, Mle(), config, rows, rows, reader)

    def predict(self, name):
        for samples in (None, 0):
            check_any_prediction(sgpa.load(self.work).predict(self.inputs[name], samples=samples))

    def answer(self, name):
        text_networks._network.cache_clear()
        check_answers(read_saved(self.work).open().predict(self.given[name]))

    def image_backbone(self, _):
        image_networks._network.cache_clear()
        for layer in (None, 1):
            network = ImageBackbone(name=str(self.work), layer=layer)
            if not network.features([self.folder / "image.png"]).values.isfinite().all():
                raise Accepted("features are not finite")
