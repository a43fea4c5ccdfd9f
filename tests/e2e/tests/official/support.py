"""What the scripts of this folder share: a client, checks that end with a sentence, waiting.

Arguments of every script: address of the server, token of the admin. Project `main` has backends `local` and `fake`, and
an elastic fleet `pool` on `local`.
"""

import sys
import time
import uuid

from dstack._internal.core.errors import (
    ClientError,
    MethodNotAllowedError,
    ResourceExistsError,
    ResourceNotExistsError,
    ServerClientError,
    URLNotFoundError,
)
from dstack._internal.core.models.common import validate_extra_ignore
from dstack._internal.core.models.fleets import FleetSpec
from dstack._internal.core.models.runs import RunSpec
from dstack.api.server import APIClient

PROJECT = "main"
URL, TOKEN = sys.argv[1], sys.argv[2]
FINISHED = ["done", "failed", "terminated"]
PATIENCE_S = 90


def client(token=TOKEN):
    return APIClient(base_url=URL, token=token)


def check(what, seen, wanted):
    if seen != wanted:
        sys.exit(f"{what}: {seen!r}, not {wanted!r}")


def holds(what, it):
    if not it:
        sys.exit(f"{what}: {it!r}")


def refused(what, kind, words, call):
    """The call fails with this class of the client's errors, and says this."""
    try:
        answer = call()
    except ClientError as error:
        if type(error) is not kind:
            sys.exit(f"{what}: {type(error).__name__} ({error}), not {kind.__name__}")
        told = str(error) or getattr(error, "msg", "")
        if words not in told:
            sys.exit(f"{what}: {told!r} does not say {words!r}")
        return
    sys.exit(f"{what}: nothing refused it; {answer!r}")


def missing(what, call, words=""):
    refused(what, ResourceNotExistsError, words, call)


def wait(what, ask):
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        answer = ask()
        if answer:
            return answer
        time.sleep(0.2)
    sys.exit(f"{what} did not come")


def gone(what, call):
    """Waits until what the call gets does not exist any more."""

    def ask():
        try:
            call()
        except ResourceNotExistsError:
            return True
        return False

    wait(f"the end of {what}", ask)


def run_spec(name, commands, **more):
    configuration = {
        "type": "task",
        "name": name,
        "commands": commands,
        "resources": {"cpu": "x86:1..", "memory": "100MB..", "disk": "1GB.."},
        **more,
    }
    spec = {
        "run_name": name,
        "repo_id": "none",
        "repo_data": {"repo_type": "virtual"},
        "configuration": configuration,
    }
    return validate_extra_ignore(RunSpec, spec)


def fleet_spec(name, **more):
    spec = {
        "configuration": {"type": "fleet", "name": name, **more},
        "profile": {"name": "default"},
    }
    return validate_extra_ignore(FleetSpec, spec)


def submit(api, spec, project=PROJECT):
    return api.runs.apply_plan(project, api.runs.get_plan(project, spec))


def finished(api, name, project=PROJECT):
    def ask():
        run = api.runs.get(project, name)
        return run if run.status.value in FINISHED else None

    return wait(f"the end of run {name}", ask)


def user(api, name):
    """A new user and a client with its token."""
    from dstack._internal.core.models.users import GlobalRole

    api.users.create(name, GlobalRole.USER)
    return client(api.users.refresh_token(name).creds.token)


def stranger_id():
    return uuid.uuid4()
