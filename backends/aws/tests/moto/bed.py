#!/usr/bin/env python3
"""A server that plays AWS for tests: moto with the actions of EC2 that it lacks.

Run:  MOTO_AMIS_PATH=amis.json python3 bed.py [region with a way to the internet…]
      (pip install 'moto[server]'; prints its port, ends with its standard input)
Adds: placement groups (with the check for members), capacity reservations, ids of spot requests and their end, the
      blockDeviceMapping attribute of instances, an EC2 quota, a way to the internet in a default VPC (POST /bed/public?region=R),
      and faults (POST /bed/fault?action=RunInstances&code=InsufficientInstanceCapacity&times=1).
"""
import os
import sys
import threading
from moto.core.responses import ActionResult
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models import ec2_backends
from moto.ec2.models.instances import Instance
from moto.ec2.responses import EC2Response

GROUPS, RESERVATIONS, FAULTS = {}, {}, {}


def fault(action):
    left = FAULTS.get(action)
    if left and left["times"] > 0:
        left["times"] -= 1
        raise EC2ClientError(left["code"], left.get("message", "injected fault"))


def create_placement_group(self):
    fault("CreatePlacementGroup")
    name = self._get_param("GroupName")
    GROUPS[(self.region, name)] = {"GroupName": name, "Strategy": self._get_param("Strategy"), "State": "available"}
    return ActionResult({"PlacementGroup": GROUPS[(self.region, name)]})


def delete_placement_group(self):
    name = self._get_param("GroupName")
    if (self.region, name) not in GROUPS:
        raise EC2ClientError("InvalidPlacementGroup.Unknown", f"The Placement Group '{name}' is unknown.")
    for reservation in self.ec2_backend.all_reservations():
        for i in reservation.instances:
            if getattr(i, "bed_group", None) == name and i.state not in ("terminated", "shutting-down"):
                raise EC2ClientError("InvalidPlacementGroup.InUse", f"The placement group '{name}' is in use.")
    del GROUPS[(self.region, name)]
    return ActionResult({})


def describe_capacity_reservations(self):
    ids = self._get_param("CapacityReservationIds", [])
    here = lambda it: it["AvailabilityZone"].startswith(self.region)
    found = [RESERVATIONS[i] for i in ids if i in RESERVATIONS and here(RESERVATIONS[i])]
    if not found:
        raise EC2ClientError("InvalidCapacityReservationId.NotFound", "The capacity reservation does not exist")
    return ActionResult({"CapacityReservations": found})


_run = EC2Response.run_instances


def run_instances(self):
    fault("RunInstances")
    before = {i.id for r in self.ec2_backend.all_reservations() for i in r.instances}
    group = (self._get_param("Placement") or {}).get("GroupName")
    out = _run(self)
    for r in self.ec2_backend.all_reservations():
        for i in r.instances:
            if i.id not in before:
                i.bed_group = group
                if i.lifecycle == "spot":
                    i.spot_instance_request_id = "sir-" + i.id[2:10]
    return out


def cancel_spot_instance_requests(self):
    ids = self._get_param("SpotInstanceRequestIds", [])
    return ActionResult({"CancelledSpotInstanceRequests": [{"SpotInstanceRequestId": i, "State": "cancelled"} for i in ids]})


_attr = EC2Response.describe_instance_attribute


def describe_instance_attribute(self):
    if self._get_param("Attribute") != "blockDeviceMapping":
        return _attr(self)
    instance = self.ec2_backend.get_instance(self._get_param("InstanceId"))
    return ActionResult({"InstanceId": instance.id, "BlockDeviceMappings": [{"DeviceName": n} for n in instance.block_device_mapping]})


_authorize = EC2Response.authorize_security_group_ingress


def authorize_security_group_ingress(self):
    fault("AuthorizeSecurityGroupIngress")
    return _authorize(self)


for fn in (authorize_security_group_ingress, create_placement_group, delete_placement_group, describe_capacity_reservations, run_instances,
           cancel_spot_instance_requests, describe_instance_attribute):
    setattr(EC2Response, fn.__name__, fn)

try:
    from moto.servicequotas.responses import ServiceQuotasResponse
    import json as _json

    def get_service_quota(self):
        code = self._get_param("QuotaCode")
        return _json.dumps({"Quota": {"ServiceCode": self._get_param("ServiceCode"), "QuotaCode": code, "Value": 64.0}})

    ServiceQuotasResponse.get_service_quota = get_service_quota
except ImportError:
    pass


def public(region):
    backend = ec2_backends["123456789012"][region]
    vpc = backend.get_default_vpc()
    gateway = backend.create_internet_gateway()
    backend.attach_internet_gateway(gateway.id, vpc.id)
    table = [t for t in backend.route_tables.values() if t.vpc_id == vpc.id and t.main_association_id][0]
    backend.create_route(table.id, "0.0.0.0/0", gateway_id=gateway.id)


def control(app):
    def wrapped(env, start):
        path = env.get("PATH_INFO", "")
        if not path.startswith("/bed/"):
            return app(env, start)
        from urllib.parse import parse_qs
        q = {k: v[0] for k, v in parse_qs(env.get("QUERY_STRING", "")).items()}
        if path == "/bed/fault":
            FAULTS[q["action"]] = {"code": q["code"], "times": int(q.get("times", 1)), "message": q.get("message", "injected fault")}
        elif path == "/bed/reservation":
            RESERVATIONS[q["id"]] = {"CapacityReservationId": q["id"], "InstanceType": q["type"], "AvailabilityZone": q["zone"],
                                     "AvailableInstanceCount": int(q.get("count", 1)), "State": "active", "Tenancy": q.get("tenancy", "default")}
        elif path == "/bed/public":
            public(q["region"])
        start("200 OK", [("content-type", "text/plain"), ("content-length", "3")])
        return [b"ok\n"]
    return wrapped


def end_with_parent():
    """The test that started this keeps the standard input open."""
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server
    for name in sys.argv[1:]:
        public(name)
    server = make_server("127.0.0.1", 0, control(DomainDispatcherApplication(create_backend_app)), threaded=True)
    print(server.server_port, flush=True)
    threading.Thread(target=end_with_parent, daemon=True).start()
    server.serve_forever()
