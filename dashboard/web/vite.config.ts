import { defineConfig } from 'vite';
import { trimPlot } from './trim-uplot';

// The page is built once and served under any prefix, so every address is relative. There is
// one script and one style sheet: the page is small, and splitting them would cost a round trip.
export default defineConfig({
	base: './',
	plugins: [trimPlot],
	// h(type, props, child, …) is a tenth shorter than jsx(type, {children: […]}).
	// The long names keep variables from shadowing it.
	oxc: { jsx: { runtime: 'classic', pragma: 'jsxElement', pragmaFrag: 'jsxFragment' } },
	build: {
		target: 'es2023',
		modulePreload: { polyfill: false },
		assetsInlineLimit: 0, // data: addresses would need a looser policy
		cssCodeSplit: false,
		chunkSizeWarningLimit: 160, // of plain text; a test bounds what is sent
		rolldownOptions: { transform: { inject: { jsxElement: ['preact', 'h'], jsxFragment: ['preact', 'Fragment'] } } },
		reportCompressedSize: false,
	},
	server: { host: '127.0.0.1', port: 5173, proxy: { '/api': 'http://127.0.0.1:8080' } },
	optimizeDeps: { exclude: ['uplot'] },
});
