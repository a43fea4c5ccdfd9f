"""Section 3, users: made, changed, listed, given new tokens."""

from support import *

from dstack._internal.core.models.users import GlobalRole

api = client()
me = api.users.get_my_user()
check("who I am", (me.username, me.global_role.value, me.active), ("admin", "admin", True))
check("my token", me.creds.token, TOKEN)
holds("my keys", me.ssh_public_key and me.ssh_private_key)
check("the same again", api.users.get_my_user().ssh_public_key, me.ssh_public_key)

ann = api.users.create("ann", GlobalRole.USER)
check("a new user", (ann.username, ann.global_role, ann.email), ("ann", GlobalRole.USER, None))
refused("the same name", ResourceExistsError, "", lambda: api.users.create("Ann", GlobalRole.USER))
refused(
    "a bad name",
    ServerClientError,
    "Username should match regex",
    lambda: api.users.create("a b", GlobalRole.USER),
)
check("get_user", api.users.get_user("ann").id, ann.id)
missing("an unknown user", lambda: api.users.get_user("nobody"))
token = api.users.refresh_token("ann").creds.token
as_ann = client(token)
check("the new token works", as_ann.users.get_my_user().username, "ann")
other = as_ann.users.refresh_token("ann").creds.token
holds("a token of one's own making", other != token)
refused("the old token", ClientError, "is denied", as_ann.users.get_my_user)
as_ann = client(other)
refused("a token of another", ClientError, "is denied", lambda: as_ann.users.refresh_token("admin"))
refused("creating", ClientError, "is denied", lambda: as_ann.users.create("x", GlobalRole.USER))
missing("another's record", lambda: as_ann.users.get_user("admin"))
check("what ann sees", [one.username for one in as_ann.users.list()], ["ann"])
check("what the admin sees", [one.username for one in api.users.list()], ["ann", "admin"])
page = api.users.list(return_total_count=True, limit=1)
check("a page", (page.total_count, [one.username for one in page.users]), (2, ["ann"]))
last = page.users[0]
rest = api.users.list(prev_created_at=last.created_at, prev_id=last.id)
check("the next page", [one.username for one in rest], ["admin"])
check("by a part of the name", [it.username for it in api.users.list(name_pattern="DM")], ["admin"])
check("ascending", [it.username for it in api.users.list(ascending=True)], ["admin", "ann"])
check("promoted", api.users.update("ann", GlobalRole.ADMIN).global_role, GlobalRole.ADMIN)
check("an admin sees all", len(as_ann.users.list()), 2)
missing("updating nobody", lambda: api.users.update("nobody", GlobalRole.USER))
refused("no token", ClientError, "status code 401", client(None).users.get_my_user)

# Of these the client has no methods; it only sends them.
key = api._request("/api/users/refresh_ssh_key", body='{"username": "ann"}').json()
holds("another key", key["ssh_public_key"] and key["ssh_private_key"])
keys = "/api/users/public_keys"
public = " ".join(me.ssh_public_key.split()[:2])
added = api._request(f"{keys}/add", body='{"key": "%s", "name": "desk"}' % public).json()
check("my public keys", [one["name"] for one in api._request(f"{keys}/list").json()], ["desk"])
api._request(f"{keys}/delete", body='{"ids": ["%s"]}' % added["id"])
check("none are left", api._request(f"{keys}/list").json(), [])
check("deleting", api._request("/api/users/delete", body='{"users": ["ann"]}').json(), None)
refused("the deleted", ClientError, "is denied", as_ann.users.get_my_user)
api.users.create("ann", GlobalRole.USER)
