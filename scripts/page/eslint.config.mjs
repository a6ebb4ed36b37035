// How ESLint checks the web page.

import { createRequire } from "node:module";

const tools = createRequire(new URL("../../.tools/page/package.json", import.meta.url));
const js = tools("@eslint/js");
const globals = tools("globals");

export default [
  { ignores: ["**/vendor/"] },
  js.configs.recommended,
  {
    languageOptions: { globals: globals.browser },
    linterOptions: { reportUnusedDisableDirectives: "error" },
    rules: {
      eqeqeq: ["error", "always", { null: "ignore" }],
      "no-unused-vars": ["error", { argsIgnorePattern: "^_", ignoreRestSiblings: true }],
      "no-var": "error",
      "object-shorthand": "error",
      "prefer-const": "error",
      "prefer-template": "error",
    },
  },
];
