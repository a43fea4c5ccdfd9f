//! `dstack project`: the projects that this user knows.

use clap::Subcommand;

use crate::client::Client;
use crate::cx::Cx;
use crate::error::CliError;
use crate::local_config::Project;
use crate::settings::Token;

/// Projects in the client's configuration
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    list: ListArgs,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List the configured projects
    #[command(alias = "ls")]
    List(ListArgs),
    /// Add a project, or change its address and token
    #[command(
        after_help = "Example:\n  dstack project add --name main --url http://127.0.0.1:3000 --token TOKEN"
    )]
    Add(AddArgs),
    /// Take a project out of the configuration; the server keeps it
    #[command(visible_alias = "destroy")]
    Delete(DeleteArgs),
    /// Choose the project of commands without --project
    SetDefault {
        /// A configured project
        name: String,
    },
}

#[derive(Debug, clap::Args)]
struct ListArgs {
    /// Show the user of each token, which asks the servers
    #[arg(short, long)]
    verbose: bool,
    /// Print JSON, without tokens
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct AddArgs {
    /// The project's name on its server
    #[arg(long)]
    name: String,
    /// The server's address
    #[arg(long, value_parser = address)]
    url: String,
    /// Your token on that server
    #[arg(long)]
    token: String,
    /// Make it the default without a question
    #[arg(short, long, conflicts_with = "no")]
    yes: bool,
    /// Leave the default as it is without a question
    #[arg(short, long)]
    no: bool,
}

#[derive(Debug, clap::Args)]
struct DeleteArgs {
    /// The configured project
    #[arg(long)]
    name: String,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
}

pub(crate) fn run(args: Args, cx: &mut Cx<'_>) -> Result<(), CliError> {
    match args.command.unwrap_or(Command::List(args.list)) {
        Command::List(args) => list(&args, cx),
        Command::Add(args) => add(args, cx),
        Command::Delete(args) => delete(&args, cx),
        Command::SetDefault { name } => {
            let mut config = cx.local_config()?;
            if !config.set_default(&name) {
                return Err(unknown(&name));
            }
            config.save(&cx.settings.home)?;
            cx.ui.line("OK")
        }
    }
}

fn address(text: &str) -> Result<String, String> {
    let host = ["http://", "https://"]
        .iter()
        .find_map(|scheme| text.strip_prefix(scheme));
    match host {
        Some(host) if !host.trim_matches('/').is_empty() => Ok(text.to_owned()),
        _ => Err(
            "expected an address with http:// or https://, such as http://127.0.0.1:3000"
                .to_owned(),
        ),
    }
}

fn unknown(name: &str) -> CliError {
    CliError::message(format!(
        "project {name} is not configured; `dstack project list` shows what is"
    ))
}

fn list(args: &ListArgs, cx: &mut Cx<'_>) -> Result<(), CliError> {
    let config = cx.local_config()?;
    let default = config.default_project().map(|project| project.name.clone());
    let mut rows = Vec::new();
    let mut json = Vec::new();
    for project in &config.projects {
        let is_default = default.as_ref() == Some(&project.name);
        let user = args
            .verbose
            .then(|| user_of(project, cx).unwrap_or_else(|error| format!("({error})")));
        json.push(serde_json::json!({
            "name": project.name, "url": project.url, "default": is_default, "user": user,
        }));
        let mut row = vec![project.name.clone(), project.url.clone()];
        row.extend(user);
        row.push(if is_default {
            "✓".to_owned()
        } else {
            String::new()
        });
        rows.push(row);
    }
    if args.json {
        return cx.ui.json(&json);
    }
    let head: &[&str] = if args.verbose {
        &["PROJECT", "URL", "USER", "DEFAULT"]
    } else {
        &["PROJECT", "URL", "DEFAULT"]
    };
    let table = cx.ui.table(head, &rows);
    cx.ui.line(table)
}

fn user_of(project: &Project, cx: &Cx<'_>) -> Result<String, CliError> {
    let client = Client::new(
        &project.url,
        Some(project.token.clone()),
        &cx.settings.api_version,
    );
    let user: dstack_api::users::User = client.ask("/api/users/get_my_user")?;
    Ok(user.username)
}

fn add(args: AddArgs, cx: &mut Cx<'_>) -> Result<(), CliError> {
    let token = Token(args.token);
    let client = Client::new(&args.url, Some(token.clone()), &cx.settings.api_version);
    // Nothing is written unless the server knows the project and the token.
    client.ask::<serde_json::Value>(&format!("/api/projects/{}/get", args.name))?;
    let mut config = cx.local_config()?;
    let current = config.default_project().map(|project| project.name.clone());
    let is_default = match current {
        None => true,
        Some(current) if current == args.name => true,
        Some(_) if args.yes => true,
        Some(_) if args.no || !cx.ui.is_terminal() => false,
        Some(_) => cx
            .ui
            .confirm(&format!("Set {} as your default project?", args.name))?,
    };
    config.put(Project {
        name: args.name,
        url: args.url.trim_end_matches('/').to_owned(),
        token,
        is_default,
    });
    config.save(&cx.settings.home)?;
    cx.ui.line(format!(
        "Configuration updated at {}",
        crate::local_config::path(&cx.settings.home).display()
    ))
}

fn delete(args: &DeleteArgs, cx: &mut Cx<'_>) -> Result<(), CliError> {
    let mut config = cx.local_config()?;
    if !config
        .projects
        .iter()
        .any(|project| project.name == args.name)
    {
        return Err(unknown(&args.name));
    }
    if !args.yes
        && !cx.ui.confirm(&format!(
            "Take project {} out of the configuration?",
            args.name
        ))?
    {
        return cx.ui.line("Exiting...");
    }
    config.remove(&args.name);
    config.save(&cx.settings.home)?;
    cx.ui.line("OK")
}
