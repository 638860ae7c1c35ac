/** The APIs by name. */

import { anthropicMessages } from "./anthropic-messages.ts";
import type { Api, ApiName } from "./api.ts";
import { openaiChat } from "./openai-chat.ts";
import { openaiResponses } from "./openai-responses.ts";

export const APIS: Record<ApiName, Api> = {
  openai_chat: openaiChat,
  openai_responses: openaiResponses,
  anthropic_messages: anthropicMessages,
};
