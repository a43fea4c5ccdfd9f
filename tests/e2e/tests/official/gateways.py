"""Section 13, gateways, in a project whose backends have none."""

from support import *

from dstack._internal.core.errors import BackendNotAvailable
from dstack._internal.core.models.gateways import (
    ApplyGatewayPlanInput,
    GatewayConfiguration,
    GatewaySpec,
)

api = client()


def configuration(backend):
    return GatewayConfiguration(type="gateway", name="gate", backend=backend, region="eu-west-1", domain="example.com")


spec = GatewaySpec(configuration=configuration("aws"))
plan = api.gateways.get_plan(PROJECT, spec)
check("the plan", (plan.project_name, plan.user, plan.action.value, plan.current_resource), (PROJECT, "admin", "create", None))
check("its specification", plan.effective_spec.configuration.domain, "example.com")
wanted = ApplyGatewayPlanInput(spec=plan.spec, current_resource=None)
refused("not set up", BackendNotAvailable, "", lambda: api.gateways.apply_plan(PROJECT, wanted))
refused("not set up", BackendNotAvailable, "", lambda: api.gateways.create(PROJECT, configuration("aws")))
refused("has none", ServerClientError, "gateways", lambda: api.gateways.get_plan(PROJECT, GatewaySpec(configuration=configuration("runpod"))))
check("none", api.gateways.list(PROJECT, include_imported=True), [])
missing("no such gateway", lambda: api.gateways.get(PROJECT, "gate"))
missing("no such default", lambda: api.gateways.set_default(PROJECT, "gate"))
missing("no such domain", lambda: api.gateways.set_wildcard_domain(PROJECT, "gate", "*.x.example"))
api.gateways.delete(PROJECT, ["gate"])
