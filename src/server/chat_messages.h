// The messages of a chat request, checked and in the form that templates read.
#pragma once

#include "server/request_fields.h"

namespace replayssm::server {

// Checks "messages": a list, not empty, of objects with the roles system, developer, user,
// assistant and tool. Content is text, or a list of parts of type text, which are joined without
// anything between them; an assistant message with tool calls may have none. Other parts are
// refused by their place and type. "developer" becomes "system", the only word that templates know.
void read_messages(RequestFields& fields, Json& target);

// Checks "tools": [{"type": "function", "function": {"name", "description", "parameters"}}, ..],
// names unlike each other. Null where there are none.
void read_tools(RequestFields& fields, Json& target);

}  // namespace replayssm::server
