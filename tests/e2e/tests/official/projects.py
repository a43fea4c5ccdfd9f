"""Section 4, projects: made, joined, left, listed, deleted."""

from support import *

from dstack._internal.core.models.projects import ProjectRole
from dstack._internal.server.schemas.projects import MemberSetting

api = client()
ann, bob = user(api, "ann"), user(api, "bob")
check("the first project", api.projects.get("main").owner.username, "admin")
mine = ann.projects.create("red")
check("its owner", mine.owner.username, "ann")
check("its members", [(it.user.username, it.project_role.value) for it in mine.members], [("ann", "admin")])
refused("the name again", ResourceExistsError, "", lambda: bob.projects.create("RED"))
refused("a bad name", ServerClientError, "Project name should match", lambda: bob.projects.create("a b"))
refused("no member", ClientError, "is denied", lambda: bob.projects.get("red"))
refused("no such project", URLNotFoundError, "404", lambda: bob.projects.get("nowhere"))


def roles(project):
    return [(it.user.username, it.project_role.value) for it in project.members]


added = ann.projects.add_member("red", "bob", ProjectRole.USER)
check("a member more", roles(added), [("ann", "admin"), ("bob", "user")])
check("bob is in", bob.projects.get("red").project_id, mine.project_id)
refused("not bob's to do", ClientError, "is denied", lambda: bob.projects.add_member("red", "admin", ProjectRole.USER))
refused("unknown", ServerClientError, "User not found: nobody", lambda: ann.projects.add_member("red", "nobody", ProjectRole.USER))
settings = [
    MemberSetting(username="ann", project_role=ProjectRole.ADMIN),
    MemberSetting(username="bob", project_role=ProjectRole.MANAGER),
]
check("all anew", roles(ann.projects.set_members("red", settings)), [("ann", "admin"), ("bob", "manager")])
refused("twice", ServerClientError, "Cannot add same user multiple times", lambda: ann.projects.set_members("red", settings + settings[:1]))
check("left", roles(bob.projects.remove_member("red", "bob")), [("ann", "admin")])
refused("bob is out at once", ClientError, "is denied", lambda: bob.projects.get("red"))
refused("the last admin", ServerClientError, "last admin", lambda: ann.projects.remove_members("red", ["ann"]))
refused("no member", ServerClientError, "not a member", lambda: ann.projects.remove_member("red", "bob"))

public = ann.projects.create("blue", is_public=True)
check("public", public.is_public, True)
check("bob sees it", [it.project_name for it in bob.projects.list()], ["blue"])
check("not joined", bob.projects.list(include_not_joined=False), [])
check("bob reads it", bob.projects.get("blue").project_name, "blue")
check("bob joins", roles(bob.projects.add_member("blue", "bob", ProjectRole.USER))[-1], ("bob", "user"))
check("all", [it.project_name for it in api.projects.list()], ["blue", "red", "main"])
page = api.projects.list(return_total_count=True, limit=2, ascending=True)
check("a page", (page.total_count, [it.project_name for it in page.projects]), (3, ["main", "red"]))
last = page.projects[-1]
rest = api.projects.list(prev_created_at=last.created_at, prev_id=last.project_id, ascending=True)
check("the next page", [it.project_name for it in rest], ["blue"])
check("by a part of the name", [it.project_name for it in api.projects.list(name_pattern="LU")], ["blue"])
changed = ann._request("/api/projects/blue/update", body='{"is_public": false}').json()
check("private now", changed["is_public"], False)
no_fleets = api._request("/api/projects/list_only_no_fleets").json()
holds("those without fleets", "main" not in [it["project_name"] for it in no_fleets])
ann.projects.delete(["red", "blue"])
refused("deleted", URLNotFoundError, "404", lambda: ann.projects.get("red"))
refused("again", ServerClientError, "Failed to delete non-existent projects", lambda: api.projects.delete(["red"]))
refused("in use", ServerClientError, "active fleets", lambda: api.projects.delete(["main"]))
