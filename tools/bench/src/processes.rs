//! The hidden subcommands: programs that a mode starts, on each side, and measures from outside.

use clap::Subcommand;
use uncopy_measure::{Failure, echo};

use crate::events::{ClientArgs, ServerArgs};
use crate::{appender, file, kv, memcpy, proportional, relay, rpc, sender, short, views_loop};

/// One of them, and what it is told.
#[derive(Subcommand)]
pub enum Process {
    #[command(name = echo::server::NAME, hide = true)]
    EchoServer(echo::server::ServerArgs),
    #[command(name = rpc::server::NAME, hide = true)]
    RpcServer(rpc::server::ServerArgs),
    #[command(name = rpc::client::NAME, hide = true)]
    RpcClient(rpc::client::ClientArgs),
    #[command(name = rpc::wired::NAME, hide = true)]
    TcpService(rpc::wired::ServiceArgs),
    #[command(name = short::server::NAME, hide = true)]
    ShortServer(ServerArgs<short::Plan>),
    #[command(name = short::client::NAME, hide = true)]
    ShortClient(ClientArgs<short::Plan>),
    #[command(name = kv::server::NAME, hide = true)]
    KvServer(ServerArgs<kv::Plan>),
    #[command(name = kv::client::NAME, hide = true)]
    KvClient(ClientArgs<kv::Plan>),
    #[command(name = proportional::server::NAME, hide = true)]
    ProportionalServer(proportional::server::ServerArgs),
    #[command(name = proportional::client::NAME, hide = true)]
    ProportionalClients(proportional::client::ClientArgs),
    #[command(name = relay::program::NAME, hide = true)]
    Relay(relay::program::RelayProgramArgs),
    #[command(name = memcpy::LOOP_NAME, hide = true)]
    MemcpyLoop,
    #[command(name = appender::NAME, hide = true)]
    Appender(appender::AppenderArgs),
    #[command(name = sender::NAME, hide = true)]
    Sender(sender::SenderArgs),
    #[command(name = file::copier::NAME, hide = true)]
    FileCopier(file::copier::CopierArgs),
    #[command(name = views_loop::NAME, hide = true)]
    ViewsLoop(views_loop::LoopArgs),
}

impl Process {
    /// Does what it is told, until its standard input ends.
    pub fn run(&self) -> Result<(), Failure> {
        match self {
            Self::EchoServer(args) => echo::server::main(args),
            Self::RpcServer(args) => rpc::server::main(args),
            Self::RpcClient(args) => rpc::client::main(args),
            Self::TcpService(args) => rpc::wired::main(args),
            Self::ShortServer(args) => short::server::main(args),
            Self::ShortClient(args) => short::client::main(args),
            Self::KvServer(args) => kv::server::main(args),
            Self::KvClient(args) => kv::client::main(args),
            Self::ProportionalServer(args) => proportional::server::main(args),
            Self::ProportionalClients(args) => proportional::client::main(args),
            Self::Relay(args) => relay::program::main(args),
            Self::MemcpyLoop => memcpy::loop_main(),
            Self::Appender(args) => appender::main(args),
            Self::Sender(args) => sender::main(args),
            Self::FileCopier(args) => file::copier::main(args),
            Self::ViewsLoop(args) => views_loop::main(args),
        }
    }
}
