//! The command line of a job.

use super::jobs::{ImageFacts, JobSettings, Plan, WORKFLOW};
use super::{PlanError, shell};
use crate::config::{DevEnvironmentConfiguration, RunConfiguration};

impl Plan<'_> {
    /// What the container starts.
    pub(super) fn command(
        &self,
        facts: Option<&ImageFacts>,
        settings: &JobSettings<'_>,
    ) -> Result<Vec<String>, PlanError> {
        let base = self.spec.configuration.base();
        if let Some(entrypoint) = &base.entrypoint {
            let mut words = shell::split(entrypoint).map_err(|source| PlanError::Entrypoint {
                text: entrypoint.clone(),
                source,
            })?;
            words.extend(self.own_commands().iter().cloned());
            return Ok(words);
        }
        let commands = match &self.spec.configuration {
            RunConfiguration::DevEnvironment(dev) => self.dev_commands(dev, settings),
            RunConfiguration::Task(_) | RunConfiguration::Service(_) => {
                self.own_commands().to_vec()
            }
        };
        if commands.is_empty() {
            let image = self.image().unwrap_or_default();
            let Some(facts) = facts else {
                return Err(PlanError::UnknownCommand(image));
            };
            let words = [facts.entrypoint.as_slice(), &facts.command].concat();
            return if words.is_empty() {
                Err(PlanError::NoCommand(image))
            } else {
                Ok(words)
            };
        }
        let mut all = self.prefix(settings);
        all.extend(commands);
        let shell = match base.shell.as_deref() {
            Some("sh") => "/bin/sh",
            Some("bash") => "/bin/bash",
            Some(path) => path,
            None if self.image().is_some() => "/bin/sh",
            None => "/bin/bash",
        };
        Ok(vec![
            shell.to_owned(),
            "-i".to_owned(),
            "-c".to_owned(),
            join(&all),
        ])
    }

    fn own_commands(&self) -> &[String] {
        match (
            &self.spec.configuration,
            self.node_group,
            self.replica_group,
        ) {
            (_, Some(group), _) => &group.commands,
            (_, None, Some(group)) => &group.commands,
            (RunConfiguration::Task(task), None, None) => &task.commands,
            (RunConfiguration::Service(service), None, None) => &service.commands,
            (RunConfiguration::DevEnvironment(_), None, None) => &[],
        }
    }

    /// What comes before everything in images of ours.
    fn prefix(&self, settings: &JobSettings<'_>) -> Vec<String> {
        if self.is_docker() {
            return settings.bootstrap.docker();
        }
        if self.image().is_some() {
            return Vec::new();
        }
        let own = self.replica_group.and_then(|group| group.python);
        let python = own
            .or(self.spec.configuration.base().python)
            .unwrap_or(settings.python);
        settings.bootstrap.python(python)
    }

    fn dev_commands(
        &self,
        dev: &DevEnvironmentConfiguration,
        settings: &JobSettings<'_>,
    ) -> Vec<String> {
        let bootstrap = settings.bootstrap;
        let mut commands = Vec::new();
        if let (Some(ide), Some(version)) = (dev.ide, &dev.version) {
            commands.extend(bootstrap.install_ide(ide, version));
        }
        commands.extend(bootstrap.notebooks());
        commands.extend(dev.base.setup.iter().cloned());
        commands.push("echo".to_owned());
        commands.extend(dev.init.iter().cloned());
        if let Some(ide) = dev.ide {
            let folder = dev.base.working_dir.as_deref().unwrap_or(WORKFLOW);
            commands.extend(bootstrap.ide_hints(ide, self.run_name(), folder));
        }
        commands.extend(bootstrap.ssh_hint(self.run_name()));
        commands.extend(bootstrap.idle());
        commands
    }
}

/// Joins commands so that the first failure ends the job; one that goes to the background is put in braces.
fn join(commands: &[String]) -> String {
    let one = |command: &String| match command.trim() {
        background if background.ends_with('&') && !background.ends_with("&&") => {
            format!("{{ {background} }}")
        }
        command => command.to_owned(),
    };
    commands.iter().map(one).collect::<Vec<_>>().join(" && ")
}
