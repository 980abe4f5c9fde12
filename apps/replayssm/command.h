// The commands of the command line, one file each.
#pragma once

#include <CLI/CLI.hpp>

#include "core/result.h"
#include "terminal.h"

namespace replayssm::cli {

// Exit codes of the program.
inline constexpr int kSuccess = 0;
inline constexpr int kFailure = 1;        // it was tried and did not work
inline constexpr int kBadFlags = 2;       // it was refused before anything was done
inline constexpr int kEngineFailed = 70;  // a server whose engine cannot go on
inline constexpr int kInterrupted = 130;  // Ctrl-C, as shells say it

// What names a flag was refused because of it.
inline int exit_code_of(const Error& error) {
  return error.message.starts_with("--") ? kBadFlags : kFailure;
}

// Prints the error; the command's exit code.
inline int fail(const Error& error, int exit_code) {
  print_error(error.message);
  return exit_code;
}
inline int fail(const Error& error) { return fail(error, exit_code_of(error)); }

// Each adds its subcommand to `app`; when the command line names it, running it sets `exit_code`.
void add_generate(CLI::App& app, int& exit_code);
void add_chat(CLI::App& app, int& exit_code);
void add_eval(CLI::App& app, int& exit_code);
void add_plan(CLI::App& app, int& exit_code);
void add_selftest(CLI::App& app, int& exit_code);
void add_serve(CLI::App& app, int& exit_code);
void add_bench(CLI::App& app, int& exit_code);

}  // namespace replayssm::cli
