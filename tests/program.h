// Running the built program as a person would.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace replayssm {

struct ProgramResult {
  int exit_code = -1;  // 128 + signal where a signal ended it
  std::string out;
  std::string err;
};

// What a test can do while the program runs.
struct ProgramOptions {
  std::string input;            // its standard input
  int interrupt_after_ms = -1;  // SIGINT after so long
  std::string output;           // a file that takes standard output instead
};

// `arguments` without the program's own name. Output goes through files, so nothing can block.
inline ProgramResult run_program(const std::vector<std::string>& arguments,
                                 const ProgramOptions& options = {}) {
  namespace fs = std::filesystem;
  static int calls = 0;
  const fs::path stem =
      fs::temp_directory_path() /
      ("replayssm_test_" + std::to_string(::getpid()) + "_" + std::to_string(calls++));
  const std::string in = stem.string() + ".in";
  const std::string out = stem.string() + ".out";
  const std::string err = stem.string() + ".err";
  std::ofstream(in) << options.input;

  const pid_t child = ::fork();
  if (child == 0) {
    const auto attach = [](const std::string& file, int flags, int to) {
      const int descriptor = ::open(file.c_str(), flags, 0600);
      if (descriptor < 0 || ::dup2(descriptor, to) < 0) ::_exit(126);
    };
    attach(in, O_RDONLY, STDIN_FILENO);
    if (options.output.empty()) {
      attach(out, O_WRONLY | O_CREAT | O_TRUNC, STDOUT_FILENO);
    } else {
      attach(options.output, O_WRONLY, STDOUT_FILENO);
    }
    attach(err, O_WRONLY | O_CREAT | O_TRUNC, STDERR_FILENO);
    std::vector<std::string> copies{REPLAYSSM_PROGRAM};
    copies.insert(copies.end(), arguments.begin(), arguments.end());
    std::vector<char*> argv;
    for (std::string& copy : copies) argv.push_back(copy.data());
    argv.push_back(nullptr);
    ::execv(REPLAYSSM_PROGRAM, argv.data());
    ::_exit(127);
  }
  if (options.interrupt_after_ms >= 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(options.interrupt_after_ms));
    ::kill(child, SIGINT);
  }
  int status = 0;
  ::waitpid(child, &status, 0);

  ProgramResult result;
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  const auto read = [](const std::string& file) {
    std::ostringstream text;
    text << std::ifstream(file).rdbuf();
    return text.str();
  };
  result.out = read(out);
  result.err = read(err);
  for (const std::string& file : {in, out, err}) fs::remove(file);
  return result;
}

}  // namespace replayssm
