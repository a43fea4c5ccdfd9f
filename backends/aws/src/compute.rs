//! Machines: looked at, completed, deleted.

use dstack_backend_sdk::prelude::*;

use crate::backend::Aws;
use crate::machines;

/// Machines of this backend are logged in to here.
const SSH_PORT: u16 = 22;

impl Compute for Aws {
    fn get_offers(&self, request: &GetOffersRequest) -> Result<GetOffersReply> {
        self.offers(request)
    }

    fn run_job(&self, request: &RunJobRequest) -> Result<RunJobReply> {
        run_job_on_new_instance(self, request)
    }

    fn terminate_instance(&self, request: &TerminateInstanceRequest) -> Result<Done> {
        let ec2 = self.apis.ec2(&request.region)?;
        let is_gone = machines::end(&ec2, &request.instance_id)?;
        self.release_addresses(
            &ec2,
            &request.region,
            &request.instance_id,
            request.backend_data.as_deref(),
        )?;
        if is_gone {
            Ok(Done {})
        } else {
            Err(provisioning::still_there(&request.instance_id))
        }
    }

    fn update_provisioning_data(
        &self,
        request: &UpdateProvisioningDataRequest,
    ) -> Result<UpdateProvisioningDataReply> {
        let mut data = request.provisioning_data.clone();
        let ec2 = self.apis.ec2(&data.region)?;
        // What was made a moment ago may not be known everywhere yet.
        let Some(machine) = machines::get(&ec2, &data.instance_id)? else {
            return Ok(data.into());
        };
        match machine.state() {
            "pending" => return Ok(data.into()),
            "running" => {}
            state => {
                return Err(BackendError::provisioning(format!(
                    "{} is {state}: {}",
                    machine.instance_id,
                    machine.reason()
                )));
            }
        }
        data.internal_ip = machine.private_ip().map(str::to_owned);
        data.availability_zone = machine.zone().map(str::to_owned).or(data.availability_zone);
        data.hostname = if !data.public_ip_enabled {
            machine.private_ip().map(str::to_owned)
        } else if let Some(ip) = machine.public_ip() {
            Some(ip.to_owned())
        } else if machine.network_interface_set.items.len() > 1 {
            // The provider gives no address to a machine with several interfaces.
            let address = self.give_address(&ec2, &machine, &data)?;
            data.backend_data = Some(address.backend_data);
            Some(address.ip)
        } else {
            None
        };
        if data.hostname.is_some() {
            data.ssh_port = Some(SSH_PORT);
        }
        Ok(data.into())
    }

    fn health(&self, _request: &HealthRequest) -> Result<HealthReply> {
        let account = self.apis.account()?;
        Ok(HealthReply {
            message: Some(format!("account {account}")),
        })
    }
}
