"""Section 17, exports and imports: a fleet that another project sees and uses."""

from support import *

from dstack._internal.core.models.projects import ProjectRole

api = client()
api.projects.create("other")
refused(
    "a fleet of a cloud",
    ServerClientError,
    "Can only export SSH fleets",
    lambda: api.exports.create(PROJECT, "lent", exported_fleets=["pool"]),
)
key = {"public": "", "private": api.users.get_my_user().ssh_private_key}
hosts = {"user": "u", "hosts": ["192.0.2.7"], "ssh_key": key}
spec = fleet_spec("metal", ssh_config=hosts)
made = api.fleets.apply_plan(PROJECT, api.fleets.get_plan(PROJECT, spec))
check("no private keys come back", made.spec.configuration.ssh_config.ssh_key, None)
export = api.exports.create(PROJECT, "lent", importer_projects=["other"], exported_fleets=["metal"])
check("an export", (export.name, [it.project_name for it in export.imports], [it.name for it in export.exported_fleets]), ("lent", ["other"], ["metal"]))
check("listed", [it.name for it in api.exports.list_exports(PROJECT).exports], ["lent"])
there = api.imports.list_imports("other").imports
check("imported", [(it.export.name, it.export.project_name) for it in there], [("lent", PROJECT)])
seen = api.fleets.list("other", include_imported=True)
check("its fleet is there", [(it.name, it.project_name) for it in seen], [("metal", PROJECT)])
check("not as one's own", api.fleets.list("other"), [])
ann = user(api, "ann")
api.projects.add_member("other", "ann", ProjectRole.USER)
check("a member there reads it", ann.fleets.get(PROJECT, "metal").name, "metal")
refused("but not the project", ClientError, "is denied", lambda: ann.fleets.list(PROJECT))
changed = api.exports.update(PROJECT, "lent", set_global=True)
check("for all", changed.is_global, True)
api.exports.update(PROJECT, "lent", unset_global=True)
missing("no such import", lambda: api.imports.delete(project_name="other", export_project_name=PROJECT, export_name="x"))
api.imports.delete(project_name="other", export_project_name=PROJECT, export_name="lent")
check("gone there", api.fleets.list("other", include_imported=True), [])
api.exports.delete(PROJECT, "lent")
missing("gone here", lambda: api.exports.delete(PROJECT, "lent"))
