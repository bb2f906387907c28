"""Which names a model gets at start, and what a request finds under each."""

import pytest

from gateway.cli import main
from gateway.model_names import ModelNameError, ModelNames, settle_names
from gateway.settings import Settings, SettingsError


def test_without_settings_a_model_has_its_own_name() -> None:
    assert settle_names("tiny", (), ()) == ModelNames("tiny", (), {})


def test_given_names_replace_the_own_one_and_the_first_is_the_id() -> None:
    assert settle_names("tiny", ("a", "b", "a", "c"), ()) == ModelNames("a", ("b", "c"), {})


def test_aliases_lead_to_the_id_whichever_name_they_give() -> None:
    names = settle_names("tiny", ("a", "b"), ("gpt-4o=b", "gpt-4o-mini=a"))
    assert names.aliases == {"gpt-4o": "a", "gpt-4o-mini": "a"}


@pytest.mark.parametrize(
    ("alias", "named"),
    [
        ("gpt=big", "'big' is not served; served is tiny"),
        ("gpt=gpt", "'gpt' is not served"),
        ("gpt=other", "'other' is not served"),
        ("tiny=tiny", "'tiny' is already a name"),
        ("other=tiny", "'other' is already a name"),
    ],
)
def test_alias_that_does_not_fit_is_named_in_one_line(alias: str, named: str) -> None:
    with pytest.raises(ModelNameError, match=named) as caught:
        settle_names("tiny", (), ("other=tiny", alias))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("entry", ["gpt", "=tiny", "gpt=", "a=b,c"])
def test_alias_that_is_no_pair_stops_the_start(entry: str) -> None:
    with pytest.raises(SettingsError, match="is not of the form name=id"):
        Settings.load({"RADIXGATE_MODEL_ALIASES": entry}, {})


def test_pairs_come_from_one_variable_or_from_several_flags() -> None:
    pairs = ("gpt-4o=tiny", "gpt-4=tiny")
    assert Settings.load({"RADIXGATE_MODEL_ALIASES": ", ".join(pairs)}, {}).model_aliases == pairs
    assert Settings.load({}, {"model_aliases": list(pairs)}).model_aliases == pairs


def test_the_flag_may_be_given_several_times(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Settings] = []
    monkeypatch.setattr("gateway.serve.serve", started.append)
    flag = "--served-model-name"
    main(["serve", flag, "a", flag, "b,c", "--model-aliases", "gpt-4o=a"])
    (settings,) = started
    assert settings.served_model_name == ("a", "b", "c")
    assert settings.model_aliases == ("gpt-4o=a",)
