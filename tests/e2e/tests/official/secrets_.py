"""Section 14, secrets: set, read by who may, used by a job, deleted."""

from support import *

from dstack._internal.core.models.projects import ProjectRole

api = client()
secret = api.secrets.create_or_update(PROJECT, "KEY", "one")
check("made", (secret.name, secret.value), ("KEY", "one"))
check("changed", api.secrets.create_or_update(PROJECT, "KEY", "two").id, secret.id)
check("read", api.secrets.get(PROJECT, "KEY").value, "two")
check("listed without its value", [(it.name, it.value) for it in api.secrets.list(PROJECT)], [("KEY", None)])
missing("unknown", lambda: api.secrets.get(PROJECT, "NOPE"))
refused("a bad name", ServerClientError, "Secret name should match regex", lambda: api.secrets.create_or_update(PROJECT, "a b", "x"))
refused("too long", ServerClientError, "must not exceed 5000", lambda: api.secrets.create_or_update(PROJECT, "LONG", "x" * 5001))
ann = user(api, "ann")
for role in [ProjectRole.USER, ProjectRole.MANAGER]:
    api.projects.add_member(PROJECT, "ann", role)
    refused(f"as {role.value}", ClientError, "is denied", lambda: ann.secrets.list(PROJECT))
run = submit(api, run_spec("uses", ['test "$VALUE" = two'], env={"VALUE": "${{ secrets.KEY }}"}))
check("the job has it", finished(api, "uses").status.value, "done")
missing("two of them", lambda: api.secrets.delete(PROJECT, ["KEY", "A", "B"]), "A, B")
check("nothing was deleted", len(api.secrets.list(PROJECT)), 1)
api.secrets.delete(PROJECT, ["KEY"])
check("deleted", api.secrets.list(PROJECT), [])
