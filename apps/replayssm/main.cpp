// replayssm: text from hybrid linear-attention models, through ReplaySSM.
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <iostream>
#include <string_view>

#include "command.h"
#include "command_line.h"
#include "terminal.h"

namespace replayssm::cli {
namespace {

// Weights are mapped, not read. If a file loses its end while it is in use, the next touch of the
// lost part is a SIGBUS, and all that is left to do is to say so.
void on_lost_memory(int) {
  constexpr std::string_view kText =
      "\nreplayssm: a file of the checkpoint was cut short while it was in use\n";
  [[maybe_unused]] const auto written = write(STDERR_FILENO, kText.data(), kText.size());
  _exit(kFailure);
}

// Success is only what reached standard output.
int flushed(int exit_code) {
  std::cout.flush();
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0 && std::cout.good()) return exit_code;
  print_error(fmt::format("standard output cannot be written: {}", std::strerror(errno)));
  return exit_code == kSuccess ? kFailure : exit_code;
}

int run(int argc, char** argv) {
  CLI::App app{
      "Text from hybrid linear-attention models: the recurrent state is not written every token, "
      "its inputs are logged and folded in now and then.",
      "replayssm"};
  app.set_version_flag("--version", "replayssm " REPLAYSSM_VERSION);
  app.require_subcommand(1);
  app.footer(
      "replayssm COMMAND --help explains each command.\n"
      "Exit codes: 0 done; 1 it was tried and failed; 2 the command line was refused; 130 "
      "interrupted.");
  int exit_code = kSuccess;
  add_generate(app, exit_code);
  add_chat(app, exit_code);
  add_eval(app, exit_code);
  add_plan(app, exit_code);
  add_selftest(app, exit_code);
  add_serve(app, exit_code);
  add_bench(app, exit_code);
  auto wrong = empty_value(argc, argv);
  if (!wrong) wrong = misread_number(app, argc, argv);
  if (wrong) {
    print_error(*wrong);
    return kBadFlags;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    print_error(explain(error, app, argc, argv));
    return kBadFlags;
  } catch (const std::exception& error) {
    print_error(error.what());
    return kFailure;
  }
  return exit_code;
}

}  // namespace
}  // namespace replayssm::cli

int main(int argc, char** argv) {
  using namespace replayssm::cli;
  struct sigaction lost {};
  lost.sa_handler = on_lost_memory;
  sigaction(SIGBUS, &lost, nullptr);
  return flushed(run(argc, argv));
}
