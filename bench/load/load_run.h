// Closed-loop load on an OpenAI-compatible server: so many clients, each with one request at a
// time.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/result.h"
#include "load/http_url.h"
#include "load/load_sample.h"

namespace replayssm::load {

enum class Endpoint { chat, completions };

struct LoadOptions {
  HttpUrl url;
  Endpoint endpoint = Endpoint::chat;
  std::string model;
  std::string api_key;               // empty: none
  std::vector<std::string> prompts;  // one a request, in this order
  int concurrency = 1;
  int max_tokens = 64;
  bool ignore_eos = true;
  double temperature = 0;
  std::uint64_t seed = 0;  // request i is sent with seed + i
  double timeout = 600;    // seconds of silence after which a request has failed
};

struct LoadResult {
  std::vector<LoadSample> samples;  // of the requests that ended, in the order of their ends
  double seconds = 0;               // from the first request's start to the last one's end
  bool interrupted = false;         // `proceed` said so: requests under way were dropped
};

// The id of the first model of GET /v1/models. Errors name --url.
Result<std::string> first_model(const HttpUrl& url, const std::string& api_key);

// Sends all requests, streamed, over `concurrency` connections that are kept open. `proceed` is
// told the number of requests that have ended, at each end and ten times a second; false ends the
// run. Failed requests are samples with an error.
LoadResult run_load(const LoadOptions& options, const std::function<bool(std::size_t)>& proceed);

}  // namespace replayssm::load
