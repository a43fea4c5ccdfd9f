"""Section 15, events: what happened, found by every filter, in the words that scripts look for."""

from support import *

from dstack._internal.core.models.events import EventTargetType

api = client()
project = api.projects.get(PROJECT)
admin = api.users.get_my_user()
fleet = api.fleets.get(PROJECT, "pool")
run = submit(api, run_spec("hello", ["true"]))
run = finished(api, "hello")
secret = api.secrets.create_or_update(PROJECT, "KEY", "v")


def messages(**filters):
    return [it.message for it in api.events.list(ascending=True, **filters)]


job = run.jobs[0].job_submissions[0].id
of_run = messages(target_runs=[run.id])
check("the run's beginning", of_run[0], "Run submitted. Status: SUBMITTED")
check("its middle", of_run[1], "Run status changed SUBMITTED -> PROVISIONING")
check("its end", of_run[-2:], [
    "Run status changed RUNNING -> TERMINATING. Termination reason: ALL_JOBS_DONE",
    "Run status changed TERMINATING -> DONE",
])
of_job = messages(target_jobs=[job])
check("the job's beginning", of_job[0], "Job created on run submission. Status: SUBMITTED")
holds("its machine", any(it.startswith("Job assigned to instance. ") or it.startswith("Instance created for job. ") for it in of_job))
holds("its end", "Job status changed TERMINATING -> DONE" in of_job)
within = messages(within_runs=[run.id])
holds("the run and its jobs", of_run[0] in within and of_job[0] in within)
check("the fleet", messages(target_fleets=[fleet.id])[0], "Fleet created. Status: ACTIVE")
holds("its machines", any(it.startswith("Instance") for it in messages(within_fleets=[fleet.id])))
check("the secret", messages(target_secrets=[secret.id]), ["Secret created"])
# Beside it our own: which plugins were loaded.
check("the project", messages(target_projects=[project.project_id])[0], "Project created")
check("the user", messages(target_users=[admin.id]), ["User created"])
check("of one kind", set(messages(include_target_types=[EventTargetType.SECRET])), {"Secret created"})
holds("by the server", "Run submitted. Status: SUBMITTED" not in messages(actors=[None]))
holds("jobs are the server's", of_job[0] in messages(actors=[None]))
check("by nobody", messages(actors=[stranger_id()]), [])
everything = api.events.list(within_projects=[project.project_id])
holds("newest first", everything[0].recorded_at >= everything[-1].recorded_at)
first = api.events.list(within_projects=[project.project_id], limit=3)
rest = api.events.list(within_projects=[project.project_id], prev_recorded_at=first[-1].recorded_at, prev_id=first[-1].id)
check("pages", [it.id for it in first + rest], [it.id for it in everything])
ann = user(api, "ann")
check("a stranger's", [it.message for it in ann.events.list()], ["User token refreshed", "User created"])
mine = ann.events.list()[0]
check("who did it", (mine.actor_user, mine.targets[0].name), ("admin", "ann"))
