"""What the official client sees of backends that it does not know. It reads every answer with its own models.

Arguments: address of the server, token. In project `main` a run is on backend `local` and a machine on backend `fake`.
"""

import sys

from dstack._internal.core.models.backends.base import BackendType
from dstack._internal.core.models.common import validate_extra_ignore
from dstack._internal.core.models.fleets import FleetSpec
from dstack._internal.core.models.runs import RunSpec
from dstack.api.server import APIClient

UNKNOWN = ["fake", "local"]
PROJECT = "main"


def check(what, seen, wanted):
    if seen != wanted:
        sys.exit(f"{what}: {seen!r}, not {wanted!r}")


def shown(backend, instance_type):
    """The true name, which stands in front of the instance type's."""
    check(f"the backend of {instance_type.name}", backend, BackendType.REMOTE)
    name, colon, rest = instance_type.name.partition(":")
    if not colon or not rest:
        sys.exit(f"no backend in the name {instance_type.name!r}")
    return name


def spec():
    return validate_extra_ignore(
        RunSpec,
        {
            "run_name": "look",
            "repo_id": "none",
            "repo_data": {"repo_type": "virtual"},
            "configuration": {
                "type": "task",
                "name": "look",
                "commands": ["true"],
                "resources": {"cpu": "x86:1..", "memory": "100MB..", "disk": "1GB.."},
            },
        },
    )


def offers(plans):
    return sorted(
        {shown(offer.backend, offer.instance) for plan in plans for offer in plan.offers}
    )


def main():
    client = APIClient(base_url=sys.argv[1], token=sys.argv[2])
    for name in UNKNOWN:
        if name in [known.value for known in BackendType]:
            sys.exit(f"the official client knows {name} by now: choose another one")

    types = client._request("/api/backends/list_types").json()
    check("types that are unknown", [name for name in types if name in UNKNOWN], [])
    check("their number", len(client.backends.list_backend_types()), len(types))
    project = client.projects.get(PROJECT)
    check("backends of the project", [it.name.value for it in project.backends], [])
    for project in client.projects.list():
        check(f"backends of {project.project_name}", project.backends, [])

    plan = client.runs.get_plan(PROJECT, spec(), for_offers_only=True)
    check("offers of all", offers(plan.job_plans), UNKNOWN)
    # Those of fleets only: one machine is busy, the other one not up yet.
    offers(client.runs.get_plan(PROJECT, spec()).job_plans)
    gpus = client.gpus.list_gpus(PROJECT, spec(), group_by=["backend"])
    check("backends of GPUs", {gpu.backend for gpu in gpus}, {BackendType.REMOTE})
    for gpu in client.gpus.list_gpus(PROJECT, spec()):
        check(f"backends of {gpu.name}", gpu.backends, [BackendType.REMOTE])
    fleet = validate_extra_ignore(
        FleetSpec,
        {
            "configuration": {"type": "fleet", "name": "more", "nodes": 1},
            "profile": {"name": "default"},
        },
    )
    check("offers for a fleet", offers([client.fleets.get_plan(PROJECT, fleet)]), UNKNOWN)

    runs = client.runs.list(PROJECT, repo_id=None)
    check("runs", [run.run_spec.run_name for run in runs], ["here"])
    for run in [*runs, client.runs.get(PROJECT, "here")]:
        data = run.jobs[0].job_submissions[-1].job_provisioning_data
        check("the run's machine", shown(data.backend, data.instance_type), "local")
        check("the run's host", data.hostname, "127.0.0.1")
        check("no shim to attach through", data.dockerized, False)
    machines = [
        shown(machine.backend, machine.instance_type)
        for fleet in client.fleets.list(PROJECT)
        for machine in fleet.instances
    ]
    check("machines", sorted(machines), UNKNOWN)
    if not client.events.list():
        sys.exit("no events")


main()
