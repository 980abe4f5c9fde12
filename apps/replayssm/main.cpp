// replayssm: text from hybrid linear-attention models, through ReplaySSM.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <string>

#include "command.h"

int main(int argc, char** argv) {
  using namespace replayssm::cli;
  CLI::App app{
      "Text from hybrid linear-attention models: the recurrent state is not written every token, "
      "its inputs are logged and folded in now and then.",
      "replayssm"};
  app.set_version_flag("--version", "replayssm " REPLAYSSM_VERSION);
  app.require_subcommand(1);
  app.footer("replayssm COMMAND --help explains each command.");
  int exit_code = kSuccess;
  add_generate(app, exit_code);
  add_chat(app, exit_code);
  add_eval(app, exit_code);
  add_plan(app, exit_code);
  add_selftest(app, exit_code);
  add_bench(app, exit_code);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    std::string line = error.what();
    for (char& c : line) {
      if (c == '\n') c = ' ';
    }
    // CLI11 says only that a command is missing when it does not know the one that was given.
    if (argc > 1 && argv[1][0] != '-' && app.get_subcommands().empty()) {
      line = std::string(argv[1]) + " is not a command; expected";
      for (const CLI::App* command : app.get_subcommands({})) line += " " + command->get_name();
    }
    std::fprintf(stderr, "replayssm: %s\n", line.c_str());
    return kBadFlags;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "replayssm: %s\n", error.what());
    return kFailure;
  }
  return exit_code;
}
