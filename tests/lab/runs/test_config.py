from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from contextual_dropout_lab.errors import ConfigError
from contextual_dropout_lab.runs.config import RunConfig, experiment_names, load_experiment
from contextual_dropout_lab.runs.methods import CONVERSIONS, build_model, build_objective, build_optimizer
from tests.lab.runs.tiny import tiny

OWN = """
base: {data: digits, epochs: 3, options: {reduction: 4, temperature: 0.1}}
settings: {noisy: {noise_sd: 0.5}, clean: {noise_sd: 0.0, methods: {second: {p: 0.5}}}}
methods:
  first: {conversion: contextualize, options: {temperature: 1.0}}
  second: {conversion: mc_dropout}
presets:
  full: {seeds: {noisy: 2, clean: 1}}
  small:
    name: own-small
    base: {epochs: 1}
    seeds: {noisy: 1}
    methods: {warm: {like: first, p: 0.4}, second: {like: second}}
"""


@pytest.fixture
def own(tmp_path: Path) -> Path:
    path = tmp_path / "own.yaml"
    path.write_text(OWN)
    return path


def test_differences_are_laid_over_the_base_mapping_by_mapping(own: Path) -> None:
    config = load_experiment(own).run("noisy", "first", 3, "full", p=0.3)
    assert config.options == {"reduction": 4, "temperature": 1.0}
    assert (config.epochs, config.noise_sd, config.p, config.name) == (3, 0.5, 0.3, "own/noisy/first/seed-3")


def test_a_setting_can_have_values_of_its_own_for_a_method(own: Path) -> None:
    experiment = load_experiment(own)
    rates = [experiment.run(setting, "second", 0, "full").p for setting in ("noisy", "clean")]
    assert rates == [0.2, 0.5]
    assert experiment.run("clean", "first", 0, "full").p == 0.2


def test_a_preset_runs_setting_by_setting_and_seed_by_seed(own: Path) -> None:
    names = [config.name for config in load_experiment(own).runs("full")]
    assert names == [
        "own/noisy/first/seed-0",
        "own/noisy/second/seed-0",
        "own/noisy/first/seed-1",
        "own/noisy/second/seed-1",
        "own/clean/first/seed-0",
        "own/clean/second/seed-0",
    ]


def test_a_preset_can_have_candidates_of_its_own(own: Path) -> None:
    warm, second = load_experiment(own).runs("small")
    assert (warm.name, warm.p, warm.epochs, warm.options["temperature"]) == ("own-small/noisy/warm/seed-0", 0.4, 1, 1.0)
    assert second.conversion == "mc_dropout"


def test_what_was_chosen_for_a_setting_is_none_of_the_candidates(own: Path) -> None:
    """Else they would change with the choice that was made among them."""
    candidates = "mild: {like: second, options: {reduction: 8}}, second: {like: second}}"
    own.write_text(OWN.replace("second: {like: second}}", candidates))
    experiment = load_experiment(own)
    assert [experiment.run("clean", method, 0, "small").p for method in ("mild", "second")] == [0.2, 0.5]
    assert experiment.run("clean", "mild", 0, "small").options["reduction"] == 8


def test_the_digest_stands_for_all_values_and_survives_json() -> None:
    config = tiny()
    assert RunConfig.from_dict(config.to_dict()) == config
    assert RunConfig.from_dict(config.to_dict()).digest == config.digest
    others = [tiny(seed=1), tiny(p=0.3), tiny(hidden=(17,)), tiny(objective={"kl_weight": 0.02})]
    assert len({config.digest, *(other.digest for other in others)}) == 5


def test_a_value_that_is_as_by_default_does_not_change_the_digest() -> None:
    values = tiny().to_dict()
    assert RunConfig.from_dict({name: value for name, value in values.items() if name != "batch_size"}) == tiny()
    assert tiny(batch_size=128).digest == tiny().digest != tiny(batch_size=64).digest


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("base: [", "is not valid YAML"),
        ("base: {}", "must have the mappings base, settings, methods, presets; it lacks settings, methods, presets"),
        ("{base: {}, bases: {}}", "base, settings, methods, presets and nothing else"),
        ("- 1", "must have the mappings"),
        ("{base: 1, settings: {}, methods: {}, presets: {}}", "base of .* must be a mapping, got 1"),
    ],
)
def test_a_bad_file_says_what_is_wrong(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        load_experiment(path)


LAUGHS = "settings: {noisy: {options: {a: &a0 [x, x]" + "".join(
    f", b{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9)
)
MERGES = "base: {a0: &a0 {x: 1}" + "".join(
    f", a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}" for n in range(1, 9)
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (LAUGHS + "}}}", "aliases stand for [0-9]{9} values, more than 65536"),
        (MERGES + "}", "aliases stand for .* values"),
        ("base: &a {options: *a}", "a value that contains itself"),
        ("[" * 10_000, "is not valid YAML: maximum recursion depth"),
        ("a: 2001-99-99", "is not valid YAML: month must be in"),
        ("a: \x00", "unacceptable character"),
        ("# " + "x" * 2**17, "has 131073 characters: expected at most 131072"),
        (
            OWN.replace("{noisy: 2, clean: 1}", "{noisy: 1000000000000}"),
            "seeds: noisy of presets: full of .* 0 to 10000",
        ),
        (OWN.replace("{noisy: 2, clean: 1}", "[noisy]"), "seeds of presets: full of .* must be a mapping"),
        (OWN.replace("{noise_sd: 0.5}", "3"), "noisy of settings of .* must be a mapping, got 3"),
        (OWN.replace("methods: {second: {p: 0.5}}", "only: 3"), "only of settings: clean of .* must be a list"),
        (OWN.replace("{like: second}", "{p: 0.1}"), "methods: second of presets: small of .* which method it is like"),
    ],
)
def test_a_hostile_file_costs_nothing(tmp_path: Path, text: str, message: str) -> None:
    (path := tmp_path / "bad.yaml").write_text(text)
    with pytest.raises(ConfigError, match=message):
        load_experiment(path)


def test_a_file_that_is_no_text_or_not_there_is_named(tmp_path: Path) -> None:
    (path := tmp_path / "bad.yaml").write_bytes(b"base: \xff")
    for wrong in (path, tmp_path / "none.yaml", tmp_path):
        with pytest.raises(ConfigError, match=wrong.name):
            load_experiment(wrong)


@pytest.mark.parametrize("name", ["../up", "/tmp/x", "a/b", "..", ".", "", " ", "a\\b", "a\nb", 3, None])
@pytest.mark.parametrize("field", ["experiment", "setting", "method"])
def test_names_do_not_lead_out_of_the_folder_of_results(field: str, name: object) -> None:
    with pytest.raises(ConfigError, match=f"{field} must be a name without slashes"):
        tiny(**{field: name})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "wrong",
    [
        {"split": "tset"},
        {"split": None},
        {"noise_sd": float("nan")},
        {"p": float("inf")},
        {"hidden": [1.5]},
        {"hidden": [[1]]},
        {"ood": [1]},
        {"test_noise_sd": ["x"]},
        {"options": {"a": float("nan")}},
        {"options": {"a": [{3: 1}]}},
        {"objective": {"a": date(2001, 1, 1)}},
    ],
)
def test_values_that_no_record_could_hold_are_refused_before_a_run(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        RunConfig.from_dict(tiny().to_dict() | wrong)


def test_a_file_can_extend_another(own: Path, tmp_path: Path) -> None:
    child = tmp_path / "child.yaml"
    child.write_text(f"{{extends: {own}, base: {{epochs: 9}}, methods: {{second: {{p: 0.4}}}}}}")
    config = load_experiment(child).run("noisy", "second", 0, "full")
    assert (config.name, config.epochs, config.p, config.conversion) == (
        "child/noisy/second/seed-0",
        9,
        0.4,
        "mc_dropout",
    )
    child.write_text(f"{{extends: {child}}}")
    with pytest.raises(ConfigError, match="no end to that"):
        load_experiment(child)


def test_unknown_names_list_the_known_ones(own: Path) -> None:
    experiment = load_experiment(own)
    with pytest.raises(ConfigError, match="unknown method 'third': expected one of first, second"):
        experiment.run("noisy", "third", 0, "full")
    with pytest.raises(ConfigError, match=r"unknown fields \['epoch'\] and lacks \[\]"):
        experiment.run("noisy", "first", 0, "full", epoch=1)
    with pytest.raises(ConfigError, match="no experiment 'nowhere': the package has"):
        load_experiment("nowhere")
    with pytest.raises(ConfigError, match="unknown conversion 'magic'"):
        build_model(tiny(conversion="magic"), (64,), 10)


#: The shape of one input that is not a colour image.
SHAPES = {"mlp": (20,), "vit": (1, 28, 28), "mcan": (16, 768)}


@pytest.mark.parametrize("name", experiment_names())
def test_every_packaged_run_can_be_built(name: str) -> None:
    experiment = load_experiment(name)
    for preset in experiment.presets:
        configs = list(experiment.runs(preset))
        assert len({config.name for config in configs}) == len(configs) > 0
        for config in {config.method: config for config in configs}.values():
            if config.network_options.get("width", 1) > 1 or config.network_options.get("size") == "small":
                continue  # tens of millions of parameters, the same code
            assert config.conversion in CONVERSIONS
            model = build_model(config, SHAPES.get(config.network, (3, 32, 32)), 3)
            build_objective(config, model, 100, 10)
            optimizer = build_optimizer(config, model)
            trained = [parameter for group in optimizer.param_groups for parameter in group["params"]]
            assert len(trained) == sum(parameter.requires_grad for parameter in model.parameters())


def test_presets_of_two_experiments_do_not_share_a_folder() -> None:
    owners: dict[str, set[str]] = {}
    for name in experiment_names():
        for preset in load_experiment(name).presets.values():
            owners.setdefault(preset.get("name", name), set()).add(name)
    assert {folder: names for folder, names in owners.items() if len(names) > 1} == {}


@pytest.mark.parametrize(
    ("name", "setting", "method", "seconds_per_image", "minutes"),
    [
        ("cifar10", "noisy", "mc-bernoulli", 0.0016, 2.5),
        ("tiny-imagenet", "pretrained", "plain", 0.02, 15),
        ("tiny-imagenet", "finetuned", "contextual-gaussian", 0.02, 2.5),
    ],
)
def test_a_run_on_a_processor_can_be_afforded(
    name: str, setting: str, method: str, seconds_per_image: float, minutes: float
) -> None:
    """The time follows from measurements of training."""
    config = load_experiment(name).run(setting, method, 0, "cpu")
    assert config.train_examples is not None
    assert config.epochs * config.train_examples * seconds_per_image <= 60 * minutes
    assert config.batch_size >= 16  # smaller ones take longer an image
    assert all(milestone < config.epochs for milestone in config.optimizer["milestones"])


@pytest.mark.parametrize("number", [10**400, -(10**400), 10**5000, 2**64], ids=("large", "low", "longest", "many bits"))
@pytest.mark.parametrize("field", ["epochs", "p", "hidden", "options", "data", "split"])
def test_numbers_beyond_all_bounds_are_refused(number: int, field: str) -> None:
    values = {"hidden": [number], "options": {"reduction": [number]}}
    with pytest.raises(ConfigError, match=rf"^{field} must"):
        tiny(**{field: values.get(field, number)})


@pytest.mark.parametrize("number", [f"0x{5000 * 'f'}", 5000 * "9", "1" + 2000 * ":1"], ids=("hex", "decimal", "time"))
@pytest.mark.parametrize("place", ["extends: {}", "base: {{epochs: {}}}"])
def test_numbers_of_thousands_of_digits_are_refused(tmp_path: Path, number: str, place: str) -> None:
    (tmp_path / "some.yaml").write_text(place.format(number))
    with pytest.raises(ConfigError, match=r"some\.yaml is not valid YAML: it has a whole number of \d{4} digits"):
        load_experiment(tmp_path / "some.yaml")
