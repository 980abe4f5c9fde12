// Runs a program: the deterministic automaton over sets of stacks, made state by state as texts
// reach them, and remembered.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "grammar/program.h"
#include "grammar/work_allowance.h"

namespace replayssm::grammar {

// A state of the automaton; valid until forget().
using StateId = std::uint32_t;

// Not for two threads at a time. The program outlives it.
//
// A state is the set of places where the text so far may be in the program, each with its stack of
// calls. Stacks are shared lists, equal ones stored once. A place is left out if what it still
// needs would nest deeper than kMostDepth, so a text can be completed from every state but kDead
// and kTooCostly.
//
// What has to be worked out for the first time is paid from the caller's allowance. Where that does
// not suffice the state is kTooCostly, of which nothing is remembered.
class Automaton {
 public:
  // Arrays and objects inside each other.
  static constexpr std::uint32_t kMostDepth = 64;
  // States and stacks that are remembered before forget() is due.
  static constexpr std::size_t kMostStates = 1u << 16;
  static constexpr std::size_t kMostStacks = 1u << 20;
  static constexpr StateId kDead = 0;
  static constexpr StateId kTooCostly = 1;
  // Places in one state. Of more, which only patterns with nested repetitions have, the rest is
  // left out: each place can be completed by itself, so that fewer texts come out, and none is cut
  // off.
  static constexpr std::size_t kMostPlaces = 1024;

  explicit Automaton(const Program& program);

  StateId start(WorkAllowance& work);
  // kDead where no text of the grammar goes on with `byte`.
  StateId next(StateId state, unsigned char byte, WorkAllowance& work) {
    const StateId known = rows_[state * classes_ + class_of_[byte]];
    return known != kUnknown ? known : compute(state, byte, work);
  }
  StateId run(StateId state, std::string_view text, WorkAllowance& work);
  // Neither kDead nor kTooCostly.
  static bool alive(StateId state) { return state > kTooCostly; }
  // The text so far is one of the grammar's.
  bool accepting(StateId state) const { return states_[state].accepting; }
  // The text so far is one of the grammar's and none of its longer ones begins with it.
  bool complete(StateId state) const {
    return states_[state].accepting && states_[state].places.empty();
  }
  // Every sequence of whole UTF-8 characters but `"`, `\` and controls leads back to `state`: the
  // inside of a string that may hold anything. False also where the allowance does not suffice.
  bool inside_free_string(StateId state, WorkAllowance& work);
  // The state is inside a string that may hold any characters but only so many more: how many.
  // Nothing in any other state.
  std::optional<std::uint32_t> room_in_string(StateId state) const;

  // A state that outlives forget(): each place with its calls, the outermost first.
  struct Frame {
    NodeId node = 0;
    std::uint32_t count = 0;
    std::uint32_t depth = 0;
  };
  struct Snapshot {
    std::vector<std::vector<Frame>> places;
    bool accepting = false;
  };
  Snapshot snapshot(StateId state) const;
  StateId restore(const Snapshot& snapshot);

  bool forget_is_due() const {
    return states_.size() > kMostStates || stacks_.size() > kMostStacks;
  }
  // Drops every state but kDead and kTooCostly. Other ids given before mean nothing afterwards.
  void forget();

 private:
  static constexpr StateId kUnknown = 0xffffffffu;
  using StackId = std::uint32_t;

  // Where to go on when a call is done. Stack 0 is the empty one.
  struct Stack {
    StackId below = 0;
    NodeId node = 0;
    std::uint32_t count = 0;
    std::uint32_t depth = 0;
    bool operator==(const Stack&) const = default;
  };
  struct Place {
    NodeId node = 0;
    std::uint32_t count = 0;
    std::uint32_t depth = 0;
    StackId stack = 0;
    bool operator==(const Place&) const = default;
    auto operator<=>(const Place&) const = default;
  };
  struct Hash {
    std::size_t operator()(const Stack& s) const;
    std::size_t operator()(const Place& p) const;
  };
  enum class FreeString : std::uint8_t { unknown, yes, no };
  struct State {
    std::vector<Place> places;  // all at `bytes` nodes, sorted
    bool accepting = false;
    FreeString free_string = FreeString::unknown;
  };

  StateId compute(StateId state, unsigned char byte, WorkAllowance& work);
  StateId close(std::vector<Place> reached, WorkAllowance& work);
  StateId intern(State state);
  StackId push(const Stack& stack);
  bool self_loop(StateId state, StateId at, unsigned byte, std::size_t more, WorkAllowance& work);

  const Program* program_;
  std::array<std::uint8_t, 256> class_of_{};  // bytes that every set of the program treats alike
  std::size_t classes_ = 0;
  std::optional<NodeId> plain_head_;  // where Program::character takes an ASCII character
  std::vector<State> states_;
  std::vector<StateId> rows_;  // [states, classes]
  std::unordered_map<std::string, StateId> state_ids_;
  std::vector<Stack> stacks_;
  std::unordered_map<Stack, StackId, Hash> stack_ids_;
  StateId start_ = kUnknown;
};

}  // namespace replayssm::grammar
