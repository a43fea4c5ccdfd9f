//! Who may do what: one table. The guard before every handler and the test of all operations are made from it.

use dstack_api::projects::ProjectRole;

/// Who may use an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// Anybody, without a token.
    Anyone,
    /// The SSH proxy, by a token of its own.
    SshProxy,
    /// Any user.
    Authenticated,
    /// Global admins.
    GlobalAdmin,
    /// Members of the project of the path.
    Member,
    /// Members, and anybody if the project is public.
    MemberOrPublic,
    /// Members, and members of projects that import something from this one; the handler looks at what.
    MemberOrImporter,
    /// The same, and anybody if the project is public.
    MemberPublicOrImporter,
    /// Project admins and managers.
    Manager,
    /// The same, and anybody who joins by themselves if the project is public; the handler looks at whom.
    ManagerOrPublic,
    /// The same, and anybody for themselves; the handler looks at whom.
    ManagerOrSelf,
    /// Project admins, and managers where the server lets them see secrets.
    SecretsManager,
    /// Project admins.
    ProjectAdmin,
}

/// How a user stands to the project of the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Standing {
    /// Global admins may do everything in every project.
    pub is_global_admin: bool,
    /// Role in the project.
    pub role: Option<ProjectRole>,
    /// Whether anybody may look at the project.
    pub is_public: bool,
    /// Whether the user is a member of a project that imports something from this one.
    pub imports: bool,
    /// Whether the server lets managers see secrets.
    pub managers_see_secrets: bool,
}

impl Class {
    /// Whether the operation is about the project of the path.
    #[must_use]
    pub const fn is_of_project(self) -> bool {
        !matches!(
            self,
            Self::Anyone | Self::SshProxy | Self::Authenticated | Self::GlobalAdmin
        )
    }

    /// Whether a user may use it. The table.
    #[must_use]
    pub const fn allows(self, who: Standing) -> bool {
        if who.is_global_admin {
            return !matches!(self, Self::SshProxy);
        }
        let is_member = who.role.is_some();
        let is_admin = matches!(who.role, Some(ProjectRole::Admin));
        let is_manager = matches!(who.role, Some(ProjectRole::Admin | ProjectRole::Manager));
        match self {
            Self::Anyone | Self::Authenticated | Self::ManagerOrSelf => true,
            Self::GlobalAdmin | Self::SshProxy => false,
            Self::Member => is_member,
            Self::MemberOrPublic => is_member || who.is_public,
            Self::MemberOrImporter => is_member || who.imports,
            Self::MemberPublicOrImporter => is_member || who.is_public || who.imports,
            Self::Manager => is_manager,
            Self::ManagerOrPublic => is_manager || who.is_public,
            Self::SecretsManager => is_admin || (is_manager && who.managers_see_secrets),
            Self::ProjectAdmin => is_admin,
        }
    }
}

/// What an extra token must be good for, if one is used; users' own tokens are good for everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Needs {
    /// `read`, `runs`, or the scope of the project that it is about.
    Read,
    /// `runs`, or the scope of the project that it is about.
    Runs,
    /// The scope of the project that it is about.
    ProjectScope,
    /// `runs`, or the scope of any project: what the user's own programs need beside a project.
    Own,
    /// A user's own token.
    Whole,
}

#[cfg(test)]
mod tests {
    use super::{Class, Standing};
    use dstack_api::projects::ProjectRole;

    #[test]
    fn each_class_has_its_row() {
        let stranger = Standing::default();
        let of = |role| Standing {
            role: Some(role),
            ..stranger
        };
        let columns = [
            stranger,
            Standing {
                is_public: true,
                ..stranger
            },
            Standing {
                imports: true,
                ..stranger
            },
            of(ProjectRole::User),
            of(ProjectRole::Manager),
            Standing {
                managers_see_secrets: true,
                ..of(ProjectRole::Manager)
            },
            of(ProjectRole::Admin),
            Standing {
                is_global_admin: true,
                ..stranger
            },
        ];
        for (class, row) in [
            (Class::Authenticated, "########"),
            (Class::GlobalAdmin, ".......#"),
            (Class::Member, "...#####"),
            (Class::MemberOrPublic, ".#.#####"),
            (Class::MemberOrImporter, "..######"),
            (Class::MemberPublicOrImporter, ".#######"),
            (Class::Manager, "....####"),
            (Class::ManagerOrPublic, ".#..####"),
            (Class::SecretsManager, ".....###"),
            (Class::ProjectAdmin, "......##"),
            (Class::SshProxy, "........"),
        ] {
            let shown: String = columns
                .iter()
                .map(|who| if class.allows(*who) { '#' } else { '.' })
                .collect();
            assert_eq!(shown, row, "{class:?}");
        }
    }
}
