"""Section 5.2, repos and files: stored by hash, credentials of their own for every user."""

import hashlib
import io

from support import *

from dstack._internal.core.errors import RepoDoesNotExistError
from dstack._internal.core.models.repos import RemoteRepoCreds, RemoteRepoInfo, VirtualRepoInfo

api = client()
missing("no repo yet", lambda: api.repos.get(PROJECT, "r1"))
creds = RemoteRepoCreds(clone_url="https://example.com/a.git", private_key=None, oauth_token="tok")
api.repos.init(PROJECT, "r1", RemoteRepoInfo(repo_name="a"), creds)
api.repos.init(PROJECT, "r1", RemoteRepoInfo(repo_name="a"), creds)
api.repos.init(PROJECT, "none", VirtualRepoInfo())
check("repos", sorted(it.repo_id for it in api.repos.list(PROJECT)), ["none", "r1"])
check("its info", api.repos.get(PROJECT, "r1").repo_info.repo_name, "a")
check("its credentials", api.repos.get_with_creds(PROJECT, "r1").repo_creds.oauth_token, "tok")
from dstack._internal.core.models.projects import ProjectRole

ann = user(api, "ann")
api.projects.add_member(PROJECT, "ann", ProjectRole.USER)
check("not those of another", ann.repos.get_with_creds(PROJECT, "r1").repo_creds, None)
code = b"diff" * 100
name = hashlib.sha256(code).hexdigest()
for _ in range(2):
    api.repos.upload_code(PROJECT, "r1", name, io.BytesIO(code))
refused("no such repo", RepoDoesNotExistError, "Repo nope does not exist", lambda: api.repos.upload_code(PROJECT, "nope", name, io.BytesIO(code)))
big = b"\0" * (3 << 20)
refused("too large", ServerClientError, "exceeds the limit", lambda: api.repos.upload_code(PROJECT, "r1", hashlib.sha256(big).hexdigest(), io.BytesIO(big)))
missing("no archive yet", lambda: api.files.get_archive_by_hash(name))
archive = api.files.upload_archive(name, io.BytesIO(code))
check("its hash", archive.hash, name)
check("the same blob once", api.files.upload_archive(name, io.BytesIO(code)).id, archive.id)
check("found by its hash", api.files.get_archive_by_hash(name).id, archive.id)
missing("archives are a user's own", lambda: ann.files.get_archive_by_hash(name))
api.repos.delete(PROJECT, ["r1"])
missing("deleted", lambda: api.repos.get(PROJECT, "r1"))
