<?php
// Plugin Name: View counter
//
// Counts one view of a post in five, as plugins for that do which count some of the views: in the
// post's own metadata, before the page shows it.

add_action('wp_head', function () {
    if (is_single() && mt_rand(1, 5) === 1) {
        $id = get_queried_object_id();
        update_post_meta($id, 'views', (int) get_post_meta($id, 'views', true) + 1);
    }
});
add_filter('the_content', function ($content) {
    return $content . '<p>' . (int) get_post_meta(get_the_ID(), 'views', true) . ' views</p>';
});
