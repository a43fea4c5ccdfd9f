"""Section 12, volumes. No backend of the project has them: each one ends in a clear state."""

from support import *

from dstack._internal.core.models.volumes import AWSVolumeConfiguration

api = client()


def volume(name):
    return AWSVolumeConfiguration(type="volume", backend="aws", name=name, region="eu-west-1", size="10GB")


missing("no volume yet", lambda: api.volumes.get(PROJECT, "data"))
made = api.volumes.create(PROJECT, volume("data"))
check("a volume", (made.name, made.status.value, made.user, made.external), ("data", "submitted", "admin", False))
refused("the name again", ResourceExistsError, "", lambda: api.volumes.create(PROJECT, volume("data")))
refused("a bad name", ServerClientError, "Resource name should match", lambda: api.volumes.create(PROJECT, volume("A b")))
failed = wait("its end", lambda: (lambda it: it.status.value == "failed" and it)(api.volumes.get(PROJECT, "data")))
check("why", failed.status_message, "Backend not available")
check("all", [it.name for it in api.volumes.list(PROJECT)], ["data"])
everywhere = api._request("/api/volumes/list", body="{}").json()
check("of all projects", [it["name"] for it in everywhere], ["data"])
api.volumes.delete(PROJECT, ["data", "unknown"])
gone("the volume", lambda: api.volumes.get(PROJECT, "data"))
check("none is left", api.volumes.list(PROJECT), [])
