import { defineConfig } from "vite";

const gateway = process.env.DRAGOMAN_URL ?? "http://127.0.0.1:8484";

export default defineConfig({
  base: "/console/",
  build: {
    outDir: "../src/dragoman/console/static",
    emptyOutDir: true,
    // The Content-Security-Policy of the page allows no data: URLs for scripts and styles.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    target: "es2023",
  },
  server: {
    proxy: {
      // The gateway accepts requests of its own origin only. The page at /console/login is Vite's, like all pages.
      "^/console/(api/|login$|logout$)": {
        target: gateway,
        changeOrigin: true,
        headers: { origin: gateway },
        bypass: ({ method, url }) => (method === "GET" && !url?.startsWith("/console/api/") ? url : undefined),
      },
    },
  },
});
