"""Sections 1, 2.4, 18 and 20: versions, logins, backends, templates, the SSH proxy, health, what is not there."""

from support import *

import os
import requests

from dstack._internal.core.models.backends.base import BackendType

api = client()
check("the version", api._request("/api/server/get_info").json(), {"server_version": "0.22.5"})
check("providers of logins", api.auth.list_providers(), [])
check("without a token", client(None).auth.list_providers(), [])
missing("not set up", lambda: api.backends.config_info(PROJECT, BackendType.GCP))
refused("no YAML", ServerClientError, "Error parsing YAML", lambda: api._request(f"/api/project/{PROJECT}/backends/create_yaml", body='{"config_yaml": ": ["}'))
templates = api._request(f"/api/project/{PROJECT}/templates/list").json()
check("templates", {it["type"] for it in templates}, {"template"})
refused("the SSH proxy's way", ClientError, "is denied", lambda: api._request("/api/sshproxy/get_upstream", body='{"id": "x"}'))
refused("a route of later versions", MethodNotAllowedError, "405", lambda: api._request(f"/api/project/{PROJECT}/presets/get", body="{}"))
refused("more keys", ClientError, "Server validation error", lambda: api._request("/api/users/list", body='{"more": 1}'))
refused("no JSON", ClientError, "Server validation error", lambda: api._request("/api/users/list", body="{"))
check("health", requests.get(f"{URL}/healthcheck").json(), {"status": "running"})
check("a GET of nothing", requests.get(f"{URL}/api/nope").status_code, 404)
os.environ["DSTACK_CLIENT_API_VERSION"] = "0.23.0"
refused("a newer client", ServerClientError, "is incompatible with the server version", client().projects.list)
os.environ["DSTACK_CLIENT_API_VERSION"] = "0.22.99"
check("a newer patch", len(client().projects.list()), 1)
os.environ["DSTACK_CLIENT_API_VERSION"] = "0.20.0"
check("an older client", len(client().projects.list()), 1)
check("a slash at the end", len(APIClient(base_url=URL + "/", token=TOKEN).projects.list()), 1)
