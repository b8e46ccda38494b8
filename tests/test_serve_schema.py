"""The OpenAPI document: requests made up from it, valid and not, find nothing that it does not say."""

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis import GenerationMode
from schemathesis.checks import CHECKS, load_all_checks
from starlette.testclient import TestClient

from lazygumbel.serve import create_app
from lazygumbel.serve.changes import FIELDS as CHANGED
from lazygumbel.serve.changes import KINDS
from lazygumbel.serve.fields import FIELDS
from lazygumbel.serve.verbs import VERBS
from serve_helpers import D, Server, named_model, serving

load_all_checks()
APP = create_app(named_model(), hosts=None)
SCHEMA = schemathesis.openapi.from_dict(APP.openapi())
SCHEMA.config.generation.update(modes=[GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
JUDGED = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
    "unsupported_method",
)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving(named_model(), "--live") as running:
        yield running


@pytest.fixture(scope="module")
def own() -> Iterator[TestClient]:
    """Another, whose rows the requests that were made up do not change."""
    with TestClient(create_app(named_model().snapshot(), live=True, hosts=None)) as client:
        yield client


@SCHEMA.parametrize()
@settings(
    max_examples=8,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_nothing_is_found_by_requests_made_up_from_the_document(case: Any, server: Server) -> None:
    case.call_and_validate(base_url=server.url, checks=[CHECKS.get_one(name) for name in JUDGED])


@pytest.mark.parametrize("verb", VERBS)
def test_the_examples_of_the_document_are_answered(own: TestClient, verb: str) -> None:
    body = APP.openapi()["paths"][f"/v1/{verb}"]["post"]["requestBody"]["content"]["application/json"]
    example = body["example"] | {"theta": "river + lake"}
    reply = own.post(f"/v1/{verb}", json=example)
    assert reply.status_code == 200, reply.text
    assert set(body["schema"]["properties"]) == set(VERBS[verb].takes)


def test_the_examples_of_changes_are_made(own: TestClient) -> None:
    """One after the other, on rows of the length of the model."""
    paths = APP.openapi()["paths"]
    for kind in ("add", "replace", "remove"):
        body = paths[f"/v1/{kind}"]["post"]["requestBody"]["content"]["application/json"]
        example = body["example"] | ({"rows": [[0.5] * D]} if "rows" in body["example"] else {})
        reply = own.post(f"/v1/{kind}", json=example)
        assert reply.status_code == 200, reply.text
        assert set(body["schema"]["properties"]) == set(KINDS[kind].takes)


def test_every_argument_is_in_the_document() -> None:
    assert set(FIELDS) == {name for verb in VERBS.values() for name in verb.takes}
    assert set(CHANGED) == {name for kind in KINDS.values() for name in kind.takes}


def test_the_document_asks_for_a_token_where_one_is_needed() -> None:
    document = create_app(named_model(), token="a-token-of-some-length").openapi()
    assert document["paths"]["/v1/sample"]["post"]["security"] == [{"token": []}]
    assert "security" not in document["paths"]["/health"]["get"]


@pytest.mark.parametrize("token", ["short", "with a blank", "ünicode-token"])
def test_a_token_that_no_header_can_bear_is_refused(token: str) -> None:
    with pytest.raises(ValueError, match="token must be"):
        create_app(named_model(), token=token)
