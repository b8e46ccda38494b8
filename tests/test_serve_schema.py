"""The OpenAPI document: requests made up from it, valid and not, find nothing that it does not say."""

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis import GenerationMode
from schemathesis.checks import CHECKS, load_all_checks

from lazygumbel.serve import create_app
from lazygumbel.serve.fields import FIELDS
from lazygumbel.serve.verbs import VERBS
from serve_helpers import Server, named_model, send, serving

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
    with serving(named_model()) as running:
        yield running


@SCHEMA.parametrize()
@settings(
    max_examples=15,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_nothing_is_found_by_requests_made_up_from_the_document(case: Any, server: Server) -> None:
    case.call_and_validate(base_url=server.url, checks=[CHECKS.get_one(name) for name in JUDGED])


@pytest.mark.parametrize("verb", VERBS)
def test_the_examples_of_the_document_are_answered(server: Server, verb: str) -> None:
    body = APP.openapi()["paths"][f"/v1/{verb}"]["post"]["requestBody"]["content"]["application/json"]
    example = body["example"] | {"theta": "river + lake"}
    reply = send(server, "POST", f"/v1/{verb}", example)
    assert reply.status == 200, reply.body
    assert set(body["schema"]["properties"]) == set(VERBS[verb].takes)


def test_every_argument_is_in_the_document() -> None:
    assert set(FIELDS) == {name for verb in VERBS.values() for name in verb.takes}


def test_the_document_asks_for_a_token_where_one_is_needed() -> None:
    document = create_app(named_model(), token="a-token-of-some-length").openapi()
    assert document["paths"]["/v1/sample"]["post"]["security"] == [{"token": []}]
    assert "security" not in document["paths"]["/health"]["get"]


@pytest.mark.parametrize("token", ["short", "with a blank", "ünicode-token"])
def test_a_token_that_no_header_can_bear_is_refused(token: str) -> None:
    with pytest.raises(ValueError, match="token must be"):
        create_app(named_model(), token=token)
