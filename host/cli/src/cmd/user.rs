//! `dstack user`: the users of the server, for its admins.

use clap::{Subcommand, ValueEnum};
use dstack_api::users::{
    CreateUserRequest, DeleteUsersRequest, GetUserRequest, GlobalRole, ListUsersRequest, User,
    UserWithCreds,
};

use crate::cx::{Cx, ProjectOption};
use crate::error::CliError;
use crate::view::values::ago;

/// Users of the server
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
    /// List users; those who are no admins see themselves
    #[command(alias = "ls")]
    List(ListArgs),
    /// Add a user and show the token
    #[command(after_help = "Example:\n  dstack user create ann --email ann@example.com")]
    Create(CreateArgs),
    /// Give a user a new token and show it; the old one ends
    RefreshToken(OneArgs),
    /// Delete a user
    #[command(visible_alias = "destroy")]
    Delete(DeleteArgs),
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Role {
    /// Everything, in every project
    Admin,
    /// What projects allow
    User,
}

#[derive(Debug, clap::Args)]
struct ListArgs {
    #[command(flatten)]
    project: ProjectOption,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct CreateArgs {
    #[command(flatten)]
    project: ProjectOption,
    /// The user's name
    name: String,
    /// Role on the whole server
    #[arg(long, value_enum, default_value = "user")]
    role: Role,
    /// E-mail address
    #[arg(long)]
    email: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct OneArgs {
    #[command(flatten)]
    project: ProjectOption,
    /// The user
    name: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct DeleteArgs {
    #[command(flatten)]
    project: ProjectOption,
    /// The user
    name: String,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
}

pub(crate) fn run(args: Args, cx: &mut Cx<'_>) -> Result<(), CliError> {
    match args.command.unwrap_or(Command::List(args.list)) {
        Command::List(args) => list(&args, cx),
        Command::Create(args) => {
            let here = cx.here(args.project.project.as_deref())?;
            let order = CreateUserRequest {
                username: args.name.clone(),
                global_role: match args.role {
                    Role::Admin => GlobalRole::Admin,
                    Role::User => GlobalRole::User,
                },
                email: args.email,
                active: true,
            };
            here.client.post::<User>("/api/users/create", &order)?;
            let ask = GetUserRequest {
                username: args.name,
            };
            let made: UserWithCreds = here.client.post("/api/users/get_user", &ask)?;
            show(&made, args.json, cx)
        }
        Command::RefreshToken(args) => {
            let here = cx.here(args.project.project.as_deref())?;
            let ask = GetUserRequest {
                username: args.name,
            };
            let user: UserWithCreds = here.client.post("/api/users/refresh_token", &ask)?;
            show(&user, args.json, cx)
        }
        Command::Delete(args) => {
            let here = cx.here(args.project.project.as_deref())?;
            if !args.yes && !cx.ui.confirm(&format!("Delete the user {}?", args.name))? {
                return cx.ui.line("Exiting...");
            }
            let order = DeleteUsersRequest {
                users: vec![args.name],
            };
            here.client.post::<()>("/api/users/delete", &order)?;
            cx.ui.line("OK")
        }
    }
}

/// The token alone on its line, so that a script takes it as it is.
fn show(user: &UserWithCreds, json: bool, cx: &mut Cx<'_>) -> Result<(), CliError> {
    if json {
        return cx.ui.json(user);
    }
    cx.ui.line(user.creds.token.expose())
}

fn list(args: &ListArgs, cx: &mut Cx<'_>) -> Result<(), CliError> {
    let here = cx.here(args.project.project.as_deref())?;
    let ask = ListUsersRequest::default();
    let users: Vec<User> = here.client.post("/api/users/list", &ask)?;
    if args.json {
        return cx.ui.json(&users);
    }
    let now = cx.now();
    let rows: Vec<Vec<String>> = users
        .into_iter()
        .map(|user| {
            vec![
                user.username,
                user.global_role.to_string(),
                user.email.unwrap_or_default(),
                if user.active { "yes" } else { "no" }.to_owned(),
                user.created_at.map(|at| ago(at, now)).unwrap_or_default(),
            ]
        })
        .collect();
    let head = ["NAME", "ROLE", "EMAIL", "ACTIVE", "CREATED"];
    cx.ui.line(cx.ui.table(&head, &rows))
}
