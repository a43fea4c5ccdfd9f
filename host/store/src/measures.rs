//! What is counted for Prometheus: machines, runs and jobs with the names that their labels show.

use dstack_backend_types::JobProvisioningData;
use dstack_engine::ids::{FleetId, InstanceId, JobId, RunId};
use jiff::Timestamp;
use serde::Deserialize;

use crate::error::DbError;
use crate::sql::Sql;
use crate::tx::Tx;
use crate::{params, sql};

/// A living machine.
#[derive(Debug, Clone, PartialEq)]
pub struct MachineMeasure {
    /// Project that owns it.
    pub project: String,
    /// Its fleet.
    pub fleet: String,
    /// Its fleet's id.
    pub fleet_id: FleetId,
    /// Name.
    pub name: String,
    /// Id.
    pub id: InstanceId,
    /// When its row was made.
    pub created_at: Timestamp,
    /// What it is; none while it is being made.
    pub data: Option<JobProvisioningData>,
}

/// Runs of one user in one project by status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunMeasure {
    /// Project.
    pub project: String,
    /// User.
    pub user: String,
    /// Status.
    pub status: String,
    /// How many.
    pub count: u64,
}

/// A job that has a machine.
#[derive(Debug, Clone, PartialEq)]
pub struct JobMeasure {
    /// Project.
    pub project: String,
    /// User.
    pub user: String,
    /// Run.
    pub run: String,
    /// Run's id.
    pub run_id: RunId,
    /// `task`, `service` or `dev-environment`.
    pub run_type: String,
    /// Name.
    pub name: String,
    /// Id.
    pub id: JobId,
    /// Number in the replica.
    pub job_num: u32,
    /// Replica.
    pub replica_num: u32,
    /// When it was submitted.
    pub submitted_at: Timestamp,
    /// Its machine.
    pub data: JobProvisioningData,
}

const MACHINES: Sql = sql!(
    "SELECT p.name, f.name, f.id, i.name, i.id, i.created_at, d.provisioning_data FROM instances i \
     JOIN instance_data d ON d.id = i.id JOIN fleets f ON f.id = i.fleet_id JOIN projects p ON p.id = i.project_id \
     WHERE i.active = 1 AND i.deleted = 0 AND i.status IN ('provisioning', 'idle', 'busy', 'terminating') \
     ORDER BY p.name, f.name, i.instance_num, i.id"
);
const RUNS: Sql = sql!(
    "SELECT p.name, u.name, r.status, count(*) FROM runs r JOIN projects p ON p.id = r.project_id \
     JOIN users u ON u.id = r.user_id GROUP BY p.name, u.name, r.status ORDER BY p.name, u.name, r.status"
);
const JOBS: Sql = sql!(
    "SELECT p.name, u.name, r.name, r.id, rd.spec, j.name, j.id, j.job_num, j.replica_num, j.submitted_at, \
     d.provisioning_data FROM jobs j JOIN job_data d ON d.id = j.id JOIN runs r ON r.id = j.run_id \
     JOIN run_data rd ON rd.id = r.id JOIN projects p ON p.id = j.project_id JOIN users u ON u.id = r.user_id \
     WHERE j.status IN ('provisioning', 'pulling', 'running', 'terminating') AND d.provisioning_data IS NOT NULL \
     ORDER BY p.name, r.name, j.replica_num, j.job_num, j.id"
);

/// The living machines.
pub fn machines(tx: &mut dyn Tx) -> Result<Vec<MachineMeasure>, DbError> {
    tx.all(MACHINES, params![], |mut row| {
        Ok(MachineMeasure {
            project: row.take()?,
            fleet: row.take()?,
            fleet_id: row.take()?,
            name: row.take()?,
            id: row.take()?,
            created_at: row.take()?,
            data: row.json_opt()?,
        })
    })
}

/// All stored runs, counted.
pub fn runs(tx: &mut dyn Tx) -> Result<Vec<RunMeasure>, DbError> {
    tx.all(RUNS, params![], |mut row| {
        Ok(RunMeasure {
            project: row.take()?,
            user: row.take()?,
            status: row.take()?,
            count: row.take()?,
        })
    })
}

#[derive(Deserialize)]
struct OfSpec {
    configuration: OfConfiguration,
}

#[derive(Deserialize)]
struct OfConfiguration {
    #[serde(rename = "type")]
    kind: String,
}

/// The jobs that have a machine.
pub fn jobs(tx: &mut dyn Tx) -> Result<Vec<JobMeasure>, DbError> {
    tx.all(JOBS, params![], |mut row| {
        Ok(JobMeasure {
            project: row.take()?,
            user: row.take()?,
            run: row.take()?,
            run_id: row.take()?,
            run_type: row.json::<OfSpec>()?.configuration.kind,
            name: row.take()?,
            id: row.take()?,
            job_num: row.take()?,
            replica_num: row.take()?,
            submitted_at: row.take()?,
            data: row.json()?,
        })
    })
}
