import { defineConfig } from 'vite';

// Built once and served under any prefix, so every address is relative. One
// script and one style sheet: the page is small, and a second round trip costs
// more than it saves.
export default defineConfig({
	base: './',
	// h(type, props, child, …) is a tenth shorter than jsx(type, {children: […]}).
	oxc: { jsx: { runtime: 'classic', pragma: 'h', pragmaFrag: 'Fragment' } },
	build: {
		target: 'es2023',
		modulePreload: { polyfill: false },
		assetsInlineLimit: 0, // data: addresses would need a wider policy
		cssCodeSplit: false,
		chunkSizeWarningLimit: 120,
		rolldownOptions: { transform: { inject: { h: ['preact', 'h'], Fragment: ['preact', 'Fragment'] } } },
		reportCompressedSize: false,
	},
	server: { host: '127.0.0.1', port: 5173, proxy: { '/api': 'http://127.0.0.1:5174' } },
});
