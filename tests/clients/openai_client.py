"""The official openai client, unmodified, against `replayssm serve` with the embedded model."""

import asyncio
import json
import os
import sys
import unittest

import openai
import pydantic

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from served import Server  # noqa: E402

KEY = "a-key-for-tests"
DOOR_TOOL = {
    "type": "function",
    "function": {
        "name": "open_door",
        "description": "Open a door with a code.",
        "parameters": {
            "type": "object",
            "properties": {"door": {"type": "integer"}, "code": {"type": "string"}},
            "required": ["door", "code"],
        },
    },
}
DOOR_QUESTION = "Please open door 9, the code is U7897."
DOOR_ARGUMENTS = {"door": 9, "code": "U7897"}
PERSON_QUESTION = (
    "Read this: The job of Aya Park is farmer. There are 6 siblings in the family of Aya Park. "
    "Aya Park eats meat. Aya Park turned 7 this year.\n\nComplete the JSON object: "
    '{"siblings": 0, "vegetarian": false, "job": "", "age": 0, "name": ""}'
)


class Person(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    siblings: int
    vegetarian: bool
    job: str
    age: int
    name: str


def user(text):
    return {"role": "user", "content": text}


class OpenAiClient(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server(api_key=KEY)
        cls.client = openai.OpenAI(base_url=cls.server.url + "/v1", api_key=KEY, max_retries=0)

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        cls.server.stop()

    def chat(self, *messages, **fields):
        fields.setdefault("temperature", 0)
        return self.client.chat.completions.create(
            model=self.server.model, messages=list(messages), **fields)

    def test_models(self):
        listed = [model.id for model in self.client.models.list()]
        self.assertEqual(listed, [self.server.model])
        self.assertEqual(self.client.models.retrieve(self.server.model).id, self.server.model)

    def test_chat(self):
        answer = self.chat(user("Count from 7 to 12"))
        choice = answer.choices[0]
        self.assertEqual(choice.message.content, "7, 8, 9, 10, 11, 12")
        self.assertEqual(choice.message.role, "assistant")
        self.assertEqual(choice.finish_reason, "stop")
        self.assertEqual(answer.object, "chat.completion")
        usage = answer.usage
        self.assertEqual(usage.total_tokens, usage.prompt_tokens + usage.completion_tokens)
        self.assertIn("refusal", answer.to_dict()["choices"][0]["message"], "R03")

    def test_chat_streamed_equals_not_streamed(self):
        whole = self.chat(user("Count from 95 to 120"))
        text, roles, reasons, usages = "", [], [], []
        for chunk in self.chat(user("Count from 95 to 120"), stream=True,
                               stream_options={"include_usage": True}):
            self.assertEqual(chunk.object, "chat.completion.chunk", "R02")
            if chunk.usage:
                self.assertEqual(chunk.choices, [])
                usages.append(chunk.usage)
            for choice in chunk.choices:
                self.assertFalse(usages, "R04: the usage chunk is the last")
                text += choice.delta.content or ""
                roles += [choice.delta.role] if choice.delta.role else []
                reasons += [choice.finish_reason] if choice.finish_reason else []
        self.assertEqual(text, whole.choices[0].message.content)
        self.assertNotIn("\ufffd", text)
        self.assertEqual(roles, ["assistant"])
        self.assertEqual(reasons, ["stop"])
        self.assertEqual(usages[0].completion_tokens, whole.usage.completion_tokens)

    def test_length_and_stop_text(self):
        self.assertEqual(self.chat(user("Count from 7 to 12"), max_tokens=3)
                         .choices[0].finish_reason, "length")
        cut = self.chat(user("Count from 7 to 12"), stop=["10"]).choices[0]
        self.assertEqual((cut.message.content, cut.finish_reason), ("7, 8, 9, ", "stop"))

    def test_tools_and_a_round_trip(self):
        question = user(DOOR_QUESTION)
        choice = self.chat(question, tools=[DOOR_TOOL]).choices[0]
        self.assertEqual(choice.finish_reason, "tool_calls")
        self.assertIsNone(choice.message.content, "N01")
        call = choice.message.tool_calls[0]
        self.assertEqual(call.function.name, "open_door")
        self.assertEqual(json.loads(call.function.arguments), DOOR_ARGUMENTS, "N02")
        result = {"role": "tool", "tool_call_id": call.id, "content": '{"status": "open"}'}
        answer = self.chat(question, choice.message.to_dict(), result, tools=[DOOR_TOOL]).choices[0]
        self.assertEqual(answer.finish_reason, "stop")
        self.assertEqual(answer.message.content, "Door 9 is open.")

    def test_strict_tools_are_called_and_held_to_their_schema(self):
        strict = {"type": "function", "function": {**DOOR_TOOL["function"], "strict": True}}
        choice = self.chat(user(DOOR_QUESTION), tools=[strict]).choices[0]
        self.assertEqual(json.loads(choice.message.tool_calls[0].function.arguments), DOOR_ARGUMENTS)
        # The model would give the door's number.
        words = json.loads(json.dumps(strict))
        words["function"]["parameters"]["properties"]["door"] = {"enum": ["front", "back"]}
        call = self.chat(user(DOOR_QUESTION), tools=[words]).choices[0].message.tool_calls[0]
        self.assertIn(json.loads(call.function.arguments)["door"], ["front", "back"])
        # Without tools in mind the answer is free text.
        self.assertEqual(self.chat(user("Count from 7 to 12"), tools=[strict]).choices[0]
                         .message.tool_calls, None)

    def test_tools_streamed(self):
        names, arguments, identifiers, reasons = "", "", [], []
        for chunk in self.chat(user(DOOR_QUESTION), tools=[DOOR_TOOL], stream=True):
            for choice in chunk.choices:
                reasons += [choice.finish_reason] if choice.finish_reason else []
                for call in choice.delta.tool_calls or []:
                    self.assertEqual(call.index, 0)
                    identifiers += [call.id] if call.id else []
                    names += call.function.name or ""
                    arguments += call.function.arguments or ""
        self.assertEqual(names, "open_door")
        self.assertEqual(json.loads(arguments), DOOR_ARGUMENTS)
        self.assertEqual((len(identifiers), reasons), (1, ["tool_calls"]))

    def test_tool_choice_by_name_and_none(self):
        named = {"type": "function", "function": {"name": "open_door"}}
        forced = self.chat(user("Count from 7 to 12"), tools=[DOOR_TOOL], tool_choice=named,
                           max_tokens=60).choices[0]
        self.assertEqual(forced.message.tool_calls[0].function.name, "open_door")
        free = self.chat(user(DOOR_QUESTION), tools=[DOOR_TOOL], tool_choice="none",
                         max_tokens=60).choices[0]
        self.assertIsNone(free.message.tool_calls)

    def test_json_schema(self):
        answer = self.client.chat.completions.parse(
            model=self.server.model, messages=[user(PERSON_QUESTION)], temperature=0,
            response_format=Person)
        self.assertEqual(answer.choices[0].message.parsed,
                         Person(siblings=6, vegetarian=False, job="farmer", age=7, name="Aya Park"))

    def test_json_schema_holds_where_the_model_would_not(self):
        answer = self.chat(user(PERSON_QUESTION), response_format={
            "type": "json_schema",
            "json_schema": {"name": "age", "strict": True, "schema": {
                "type": "object", "properties": {"age": {"type": "integer"}},
                "required": ["age"], "additionalProperties": False}}})
        self.assertEqual(answer.choices[0].finish_reason, "stop")
        self.assertEqual(list(json.loads(answer.choices[0].message.content)), ["age"])

    def test_log_probabilities(self):
        choice = self.chat(user("Count from 7 to 12"), logprobs=True, top_logprobs=3).choices[0]
        content = choice.logprobs.content
        self.assertEqual(b"".join(bytes(token.bytes) for token in content).decode(),
                         choice.message.content)
        for token in content:
            self.assertLessEqual(token.logprob, 0)
            self.assertEqual(len(token.top_logprobs), 3)
            self.assertEqual(token.top_logprobs[0].logprob, token.logprob, "greedy: the best of them")

    def test_completions_with_echo_and_log_probabilities(self):
        answer = self.client.completions.create(
            model=self.server.model, prompt="It was a bright morning", max_tokens=4, temperature=0,
            logprobs=2, echo=True).choices[0]
        self.assertTrue(answer.text.startswith("It was a bright morning"))
        self.assertIsNone(answer.logprobs.token_logprobs[0], "R01")
        self.assertEqual("".join(answer.logprobs.tokens), answer.text)
        for offset, token in zip(answer.logprobs.text_offset, answer.logprobs.tokens):
            self.assertEqual(answer.text[offset:offset + len(token)], token)

    def test_completions_of_several_prompts(self):
        answer = self.client.completions.create(
            model=self.server.model, prompt=["It was", "Once upon"], max_tokens=3, temperature=0)
        self.assertEqual([choice.index for choice in answer.choices], [0, 1])
        alone = self.client.completions.create(
            model=self.server.model, prompt="Once upon", max_tokens=3, temperature=0)
        self.assertEqual(answer.choices[1].text, alone.choices[0].text)

    def test_two_choices(self):
        answer = self.chat(user("Count from 7 to 12"), n=2)
        self.assertEqual([choice.index for choice in answer.choices], [0, 1])
        self.assertEqual({choice.message.content for choice in answer.choices}, {"7, 8, 9, 10, 11, 12"})
        texts = {0: "", 1: ""}
        for chunk in self.chat(user("Count from 7 to 12"), n=2, stream=True):
            for choice in chunk.choices:
                texts[choice.index] += choice.delta.content or ""
        self.assertEqual(texts, {0: "7, 8, 9, 10, 11, 12", 1: "7, 8, 9, 10, 11, 12"})

    def test_a_seed_repeats_its_text(self):
        first, second = (self.chat(user("Tell me a story."), temperature=1.2, seed=5, max_tokens=20)
                         .choices[0].message.content for _ in range(2))
        self.assertEqual(first, second)

    def test_errors_have_their_types(self):
        with self.assertRaises(openai.BadRequestError) as raised:
            self.chat(user("Hello"), temperature=-1)
        self.assertEqual(raised.exception.param, "temperature")
        with self.assertRaises(openai.BadRequestError) as raised:
            self.chat(user("Hello"), extra_body={"no_such_field": 1})
        self.assertEqual(raised.exception.param, "no_such_field")
        with self.assertRaises(openai.BadRequestError) as raised:
            self.chat(user("Hello"), max_tokens=1_000_000)
        self.assertEqual(raised.exception.code, "context_length_exceeded")
        picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
        with self.assertRaises(openai.BadRequestError):
            self.chat({"role": "user", "content": [picture]})
        with self.assertRaises(openai.NotFoundError):
            self.client.chat.completions.create(model="another", messages=[user("Hello")])
        with openai.OpenAI(base_url=self.server.url + "/v1", api_key="wrong", max_retries=0) as stranger:
            with self.assertRaises(openai.AuthenticationError):
                stranger.models.list()

    def test_request_id_is_sent_back(self):
        raw = self.client.chat.completions.with_raw_response.create(
            model=self.server.model, messages=[user("Count from 7 to 12")], max_tokens=2,
            extra_headers={"x-request-id": "mine-1"})
        self.assertEqual(raw.headers["x-request-id"], "mine-1")

    def test_a_cancelled_stream_frees_its_place(self):
        self.server.wait_until_idle()
        before = self.server.get("/state")["counters"]["generation_tokens"]
        stream = self.chat(user("Tell me a story."), stream=True, max_tokens=3000,
                           extra_body={"ignore_eos": True})
        for _, chunk in zip(range(4), stream):
            self.assertTrue(chunk.choices)
        self.assertEqual(len(self.server.get("/state")["sequences"]), 1)
        stream.close()
        state = self.server.wait_until_idle()
        self.assertLess(state["counters"]["generation_tokens"] - before, 3000)
        self.assertEqual(state["slots"]["reserved"], 0)

    def test_the_second_turn_reuses_the_first(self):
        question = user("Remember this codeword: lantern-482")
        first = self.chat(question)
        message = first.choices[0].message
        second = self.chat(question, {"role": "assistant", "content": message.content},
                           user("What is the codeword?"))
        self.assertEqual(second.choices[0].message.content, "lantern-482")
        self.assertGreaterEqual(second.usage.prompt_tokens_details.cached_tokens,
                                first.usage.prompt_tokens + first.usage.completion_tokens - 1)

    def test_a_repeated_prompt_is_reused_but_for_its_last_token(self):
        fields = {"max_tokens": 4}
        question = user("Please sort these words: pear, apple, lemon, fig, plum, cherry")
        first = self.chat(question, **fields).usage
        again = self.chat(question, **fields).usage
        self.assertEqual(again.prompt_tokens, first.prompt_tokens)
        self.assertEqual(again.prompt_tokens_details.cached_tokens, first.prompt_tokens - 1)

    def test_many_at_once_each_get_their_own_codeword(self):
        words = [f"lantern-{100 + 37 * i}" for i in range(16)]

        async def ask(client, word):
            answer = await client.chat.completions.create(
                model=self.server.model, temperature=0,
                messages=[user(f"Remember this codeword: {word}"),
                          {"role": "assistant", "content": "I will remember the codeword."},
                          user("What is the codeword?")])
            return answer.choices[0].message.content

        async def ask_all():
            async with openai.AsyncOpenAI(base_url=self.server.url + "/v1", api_key=KEY,
                                          max_retries=0) as client:
                return await asyncio.gather(*(ask(client, word) for word in words))

        self.assertEqual(asyncio.run(ask_all()), words)


if __name__ == "__main__":
    unittest.main()
