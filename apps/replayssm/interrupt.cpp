#include "interrupt.h"

#include <csignal>

namespace replayssm::cli {
namespace {

volatile std::sig_atomic_t g_interrupted = 0;

void on_signal(int signal) {
  if (g_interrupted != 0) {
    std::signal(signal, SIG_DFL);
    std::raise(signal);
  }
  g_interrupted = 1;
}

void install(void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  // No SA_RESTART: a blocking read of the next line is to return.
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

}  // namespace

InterruptGuard::InterruptGuard() {
  g_interrupted = 0;
  install(on_signal);
}

InterruptGuard::~InterruptGuard() { install(SIG_DFL); }

bool InterruptGuard::interrupted() const { return g_interrupted != 0; }

void InterruptGuard::clear() { g_interrupted = 0; }

}  // namespace replayssm::cli
