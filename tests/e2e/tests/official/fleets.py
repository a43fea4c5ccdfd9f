"""Section 11, fleets and instances: planned, applied, filled, emptied, deleted."""

from support import *

api = client()
plan = api.fleets.get_plan(PROJECT, fleet_spec("metal", nodes={"min": 0, "max": 2}, regions=["local"]))
check("the plan", (plan.project_name, plan.user, plan.action.value), (PROJECT, "admin", "create"))
holds("offers", plan.total_offers > 0 and plan.max_offer_price is not None)
fleet = api.fleets.apply_plan(PROJECT, plan)
check("a fleet", (fleet.name, fleet.status.value, fleet.instances), ("metal", "active", []))
again = api.fleets.get_plan(PROJECT, fleet_spec("metal", nodes={"min": 0, "max": 2}, regions=["local"]))
check("nothing changed", again.current_resource.spec == again.effective_spec, True)
check("by name and id", api.fleets.get(PROJECT, "metal").id, api.fleets.get(PROJECT, fleet_id=fleet.id).id)
check("all", [it.name for it in api.fleets.list(PROJECT)], ["metal", "pool"])
missing("no such fleet", lambda: api.fleets.get(PROJECT, "nope"))
changed = api.fleets.get_plan(PROJECT, fleet_spec("metal", nodes={"min": 0, "max": 3}, regions=["local"]))
check("in place", changed.action.value, "update")
check("more nodes", api.fleets.apply_plan(PROJECT, changed).spec.configuration.nodes.max, 3)
refused(
    "an old plan",
    ServerClientError,
    "Resource has been changed",
    lambda: api.fleets.apply_plan(PROJECT, again),
)
refused("neither", ServerClientError, "No ssh_config or nodes specified", lambda: api.fleets.get_plan(PROJECT, fleet_spec("none")))
cloud = api.fleets.apply_plan(PROJECT, api.fleets.get_plan(PROJECT, fleet_spec("cloud", nodes=1, regions=["folder"])))
api.fleets.delete(PROJECT, ["cloud"])
gone("fleet cloud", lambda: api.fleets.get(PROJECT, "cloud"))

submit(api, run_spec("holder", ["sleep 600"], fleets=["metal"]))
wait("running", lambda: api.runs.get(PROJECT, "holder").status.value == "running")
machine = api.fleets.get(PROJECT, "metal").instances[0]
check("its machine", (machine.status.value, machine.fleet_name, machine.instance_num), ("busy", "metal", 0))
check("its health", (machine.unreachable, machine.health_status.value), (False, "healthy"))
refused("in use", ServerClientError, "Failed to delete fleet metal", lambda: api.fleets.delete(PROJECT, ["metal"]))
refused("also its machine", ServerClientError, "Failed to delete fleet metal instances [0]", lambda: api.fleets.delete_instances(PROJECT, "metal", [0]))
listed = api._request("/api/instances/list", body="{}").json()
check("listed", [it["name"] for it in listed if it["fleet_name"] == "metal"], ["metal-0"])
one = api._request(f"/api/project/{PROJECT}/instances/get", body='{"id": "%s"}' % machine.id).json()
check("by id", one["name"], "metal-0")
checks = api._request(
    f"/api/project/{PROJECT}/instances/get_instance_health_checks",
    body='{"fleet_name": "metal", "instance_num": 0}',
).json()
holds("its health checks", isinstance(checks["health_checks"], list))
everywhere = api._request("/api/fleets/list", body='{"only_active": true, "limit": 1}').json()
check("a page of all projects", [it["name"] for it in everywhere], ["metal"])
api.runs.stop(PROJECT, ["holder"], abort=True)
finished(api, "holder")
wait("idle", lambda: api.fleets.get(PROJECT, "metal").instances[0].status.value == "idle")
api.fleets.delete_instances(PROJECT, "metal", [0])
wait("the machine's end", lambda: not api.fleets.get(PROJECT, "metal").instances)
api.fleets.delete(PROJECT, ["metal", "unknown"])
gone("fleet metal", lambda: api.fleets.get(PROJECT, "metal"))
check("by id it stays", api.fleets.get(PROJECT, fleet_id=fleet.id).status.value, "terminated")
